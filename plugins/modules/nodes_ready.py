#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nodes_ready
short_description: Wait until some nodes are Ready
version_added: "0.2.0"
description:
  - Waits until the named nodes are Ready, and checks their version and address. It asks for these nodes only,
    so it costs the same in a small cluster and in a large one; M(ironspan.hybrid.verify) checks all of it.
  - It is an action plugin and runs on the controller only (C(run_once)).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Does not wait, because nothing has joined.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  hosts:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  timeout_s:
    description: Seconds to wait.
    type: int
    default: 180
  replaced:
    description: The replacement of their machines ends with this.
    type: bool
    default: false
  boots:
    description:
      - Boot IDs of hosts by their names. A node stays Ready for most of a minute while its host is away, so
        it is waited for until its kubelet has reported from that boot.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Wait for the new nodes
  ironspan.hybrid.nodes_ready:
    hosts: "{{ groups['__ironspan_targets'] }}"
  run_once: true
"""

RETURN = r"""
ready:
  description: The nodes.
  returned: success, not in check mode
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "timeout_s": {"type": "int"},
            "replaced": {"type": "bool", "default": False},
            "boots": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.nodes_ready runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
