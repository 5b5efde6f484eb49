#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_objects
short_description: Apply the objects that layers declare for the cluster
version_added: "0.1.0"
description:
  - Renders C(objects.yml.j2) of the layers named and applies the objects by server-side apply, in their
    order. Fields that others own stay.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description:
      - Asks the API what would come out and changes nothing. Objects that do not exist yet are shown as
        declared.
  diff_mode:
    support: full
    description: Shows what differs of each object.
options:
  layers:
    description: Layers whose objects to apply, such as V(flannel).
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Apply flannel's objects
  ironspan.hybrid.cluster_objects:
    layers: [flannel]
"""

RETURN = r"""
objects:
  description: Kind and name of the objects that differed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"layers": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.cluster_objects runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
