#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_objects
short_description: Apply Kubernetes objects in one batch
version_added: "0.1.0"
description:
  - Applies objects to the site's cluster in the order given, by server-side apply with the field manager
    C(ironspan).
  - Owns exactly the fields that are given; a field that is given no more goes away, those of others stay.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Asks the API for a dry run and changes nothing.
  diff_mode:
    support: full
    description: Shows each object before and after. Values of Secrets are left out.
options:
  objects:
    description: The objects, or one object.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Apply flannel's objects
  ironspan.hybrid.cluster_objects:
    objects: "{{ lookup('ironspan.hybrid.objects', 'flannel') }}"
"""

RETURN = r"""
objects:
  description: Kind and name of the objects that changed.
  returned: success
  type: list
  elements: str
  sample: [DaemonSet kube-flannel/kube-flannel-ds]
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"objects": {"type": "raw", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.cluster_objects runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
