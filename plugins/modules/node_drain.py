#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_drain
short_description: Take nodes out of service and put them back
version_added: "0.1.0"
description:
  - Cordons nodes and evicts the pods they have, all nodes at the same time, within
    PodDisruptionBudgets and a deadline. Static pods and pods of DaemonSets stay.
  - A node with a pod that would be lost (one without a controller), or whose data would be lost
    (C(site_drain_empty_dir_data)), is left alone altogether and reported as stuck.
  - A node that it cordoned carries an annotation; V(schedulable) uncordons only such nodes.
  - It is an action plugin and runs on the controller only, once for a whole wave of hosts (C(run_once)).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Tells which pods would be evicted and what would hold them back.
  diff_mode:
    support: none
    description: Pods are no text.
options:
  hosts:
    description: Names of the nodes. Those that the cluster does not have count as drained.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(drained) drains the nodes, V(schedulable) uncordons them.
      - V(reported) fails when anything got stuck earlier in this run, and tells all of it.
    type: str
    choices: [drained, schedulable, reported]
    default: drained
  timeout_s:
    description: Seconds for each node. C(site_drain_timeout_seconds) by default.
    type: int
  skip_unreachable:
    description: Leave a node alone whose kubelet is out of reach, and list it in C(unreachable_nodes).
    type: bool
    default: false
  delete_unreachable:
    description:
      - Delete the pods of a node from the API when its kubelet is proven to be out of reach. They may still
        run there behind a cut link, so somebody has to have looked at the machine.
    type: bool
    default: false
  replacing:
    description: Leave nodes alone whose machine was replaced already, by a run that was cut off.
    type: bool
    default: false
  force:
    description: Evict pods without a controller too. Nobody starts them again.
    type: bool
    default: false
  removed:
    description: With V(reported), hosts that were removed, for the note what to do next.
    type: list
    elements: str
    default: []
  unreached:
    description: With V(reported), hosts that could not be reset, for the same note.
    type: list
    elements: str
    default: []
  on_stuck:
    description:
      - V(continue) does not fail; C(stuck) has the nodes, and C(state=reported) tells them in the end. A
        later wave leaves out hosts of a rack in which as many got stuck as C(site_max_unavailable) allows.
    type: str
    choices: [fail, continue]
    default: fail
"""

EXAMPLES = r"""
- name: Drain the nodes of this wave
  ironspan.hybrid.node_drain:
    hosts: "{{ ansible_play_batch }}"
    on_stuck: continue
  register: upgrade_drain
  run_once: true

- name: Open them again
  ironspan.hybrid.node_drain:
    hosts: "{{ ansible_play_batch }}"
    state: schedulable
  run_once: true
"""

RETURN = r"""
drained:
  description: Nodes that are empty, or that the cluster does not have.
  returned: when O(state=drained)
  type: list
  elements: str
stuck:
  description: The reasons of each node that could not be emptied.
  returned: when O(state=drained) or O(state=reported)
  type: dict
  sample: {rack-2: ["pod web/front-1: PodDisruptionBudget web/front allows no more (2 healthy, 2 needed)"]}
unreachable_nodes:
  description: Nodes that were left alone because their kubelets are out of reach.
  returned: when O(state=drained)
  type: list
  elements: str
notes:
  description: What is to be done next, for people.
  returned: when O(state=reported)
  type: list
  elements: str
evicted:
  description: The pods that went, for each node.
  returned: when O(state=drained)
  type: dict
opened:
  description: Nodes that take pods again.
  returned: when O(state=schedulable)
  type: list
  elements: str
left_cordoned:
  description: Nodes that somebody else cordoned, and that stay cordoned.
  returned: when O(state=schedulable)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "default": []},
            "state": {
                "type": "str",
                "choices": ["drained", "schedulable", "reported"],
                "default": "drained",
            },
            "timeout_s": {"type": "int"},
            "skip_unreachable": {"type": "bool", "default": False},
            "delete_unreachable": {"type": "bool", "default": False},
            "replacing": {"type": "bool", "default": False},
            "force": {"type": "bool", "default": False},
            "removed": {"type": "list", "elements": "str", "default": []},
            "unreached": {"type": "list", "elements": "str", "default": []},
            "on_stuck": {"type": "str", "choices": ["fail", "continue"], "default": "fail"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.node_drain runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
