#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_gate
short_description: Stop an upgrade when a step did not leave the cluster well
version_added: "0.1.0"
description:
  - Waits until what was changed has its version and everything is healthy. When that does not come about in
    time it fails, and says which way back there is at this point, or that there is none.
  - With O(phase=addons) it gives kube-proxy and CoreDNS their versions, which is the end of the control
    planes' phase, and puts the workers that still differ into the group C(__ironspan_upgrade_nodes), in the
    order of their waves.
  - It is an action plugin and runs on the controller only (C(run_once)).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Waits for nothing and changes nothing.
  diff_mode:
    support: none
    description: Versions are in the result.
options:
  phase:
    description:
      - V(etcd) asks every etcd member, compares their contents, and asks the API whether it is ready.
      - V(control_plane) asks the API servers of O(hosts) directly.
      - V(addons) asks all API servers, then waits until kube-proxy and CoreDNS run everywhere.
      - V(drivers) notes on drained Nodes which GPU driver they go from and to, and says which of them a run
        that was killed was taking back.
      - V(nodes) looks at the Nodes O(hosts), their pods in kube-system, and all PodDisruptionBudgets.
    type: str
    choices: [etcd, control_plane, addons, drivers, nodes]
    required: true
  hosts:
    description: Hosts that were just changed.
    type: list
    elements: str
    default: []
  boots:
    description:
      - For V(nodes), boot IDs of hosts by their names. The gate stays closed until their kubelets report
        from that boot.
      - GPUs have to pass their preflight of it, where the repair controller asks for one.
    type: dict
    default: {}
  returning:
    description: For V(nodes), hosts that have gone back to the GPU driver of before.
    type: list
    elements: str
    default: []
  keep_driver:
    description:
      - For V(nodes), hosts whose GPUs fail their preflight with a driver that they have just got keep the
        gate closed. Otherwise they are returned as RV(back), and their Nodes note that.
    type: bool
    default: false
  timeout_s:
    description: Seconds to wait.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: Is etcd well with the new version?
  ironspan.hybrid.upgrade_gate:
    phase: etcd
    hosts: "{{ ansible_play_batch }}"
  run_once: true
"""

RETURN = r"""
problems:
  description: What is wrong.
  returned: when the gate stays closed
  type: list
  elements: str
rollback:
  description: Which way back there is, in words.
  returned: when the gate stays closed
  type: str
addons:
  description: Which addons got another version.
  returned: when the gate is open
  type: list
  elements: str
returning:
  description: Hosts that a killed run was taking back to the GPU driver of before.
  returned: with O(phase=drivers)
  type: list
  elements: str
back:
  description: Hosts whose GPUs failed their preflight with another driver, and which have to go back from it.
  returned: with O(phase=nodes)
  type: list
  elements: str
report:
  description: What there is to tell of hosts that went back; empty when there are none.
  returned: with O(phase=nodes)
  type: str
nodes:
  description: Workers to upgrade, in the order of their waves.
  returned: with O(phase=addons)
  type: list
  elements: str
closed:
  description: Nodes that are done, and that an interrupted run left cordoned.
  returned: with O(phase=addons)
  type: list
  elements: str
"""
