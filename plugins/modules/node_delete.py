#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_delete
short_description: Delete Nodes whose kubelets have stopped
version_added: "0.2.0"
description:
  - Deletes the Node objects of hosts that were reset or are dead. The Node of a kubelet that still answers is
    kept and reported as stuck (see M(ironspan.hybrid.node_drain)), because a machine would be left that runs
    pods and that nobody sees.
  - Hosts that are no nodes any more go into the group C(__ironspan_removed).
  - It is an action plugin and runs on the controller only, once for several hosts (C(run_once)).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says which Nodes there are and deletes none.
  diff_mode:
    support: none
    description: Nodes are no text.
options:
  hosts:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  replacing:
    description: Note in the cluster that another machine gets the name, so that a later run tells them apart.
    type: bool
    default: false
  timeout_s:
    description: Seconds that a kubelet has to stop answering.
    type: int
    default: 20
"""

EXAMPLES = r"""
- name: Delete the Nodes of hosts that were reset
  ironspan.hybrid.node_delete:
    hosts: "{{ ansible_play_hosts }}"
  run_once: true
"""

RETURN = r"""
deleted:
  description: Nodes that were there and are gone.
  returned: success
  type: list
  elements: str
stuck:
  description: The reason of each Node that was kept.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "replacing": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.node_delete runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
