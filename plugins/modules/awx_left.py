#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: awx_left
short_description: Say what a workflow that stopped has left
version_added: "0.3.0"
description:
  - Says which nodes are cordoned, by an operation or by people, and what to do. Fails in every case, so
    that a workflow whose failure leads here has failed.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: There is nothing to change.
  diff_mode:
    support: none
    description: There is nothing to change.
"""

EXAMPLES = r"""
- name: Say what the workflow has left
  ironspan.hybrid.awx_left:
"""

RETURN = r"""
cordoned:
  description: Nodes that an operation has cordoned.
  returned: when the cluster answers
  type: list
  elements: str
cordoned_by_people:
  description: Nodes that somebody else has cordoned.
  returned: when the cluster answers
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.awx_left runs on the controller; its action plugin was not found")


if __name__ == "__main__":
    main()
