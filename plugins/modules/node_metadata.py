#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_metadata
short_description: Give nodes the labels and taints of the inventory
version_added: "0.1.0"
description:
  - Compares labels and taints of all nodes with C(site_labels) and C(site_taints) in one request and
    changes the nodes that differ. What it gave earlier and is declared no more goes away; what others gave
    stays.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Compares and changes nothing.
  diff_mode:
    support: full
    description: Shows what differs on each node.
options:
  hosts:
    description: Only these nodes, which are asked for one by one. All nodes of the run by default.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Give the nodes their labels and taints
  ironspan.hybrid.node_metadata:
  run_once: true
"""

RETURN = r"""
nodes:
  description: Nodes that differed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"hosts": {"type": "list", "elements": "str"}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.node_metadata runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
