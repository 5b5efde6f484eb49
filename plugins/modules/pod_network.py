#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pod_network
short_description: Move drained nodes to the other pod network
version_added: "0.2.0"
description:
  - While a cluster is being moved from flannel to Cilium (C(site_cni_migration_cidr)), lets one or the other
    carry the pods of some nodes. They are closed and empty; M(ironspan.hybrid.node_drain) makes them so.
  - A label tells Cilium's agent and kube-proxy whose node it is; the agent restarts, what the other one left
    on the host is taken away, and pods that stayed on the node (of DaemonSets) are recreated.
  - Then small pods run on these nodes and on one node of each network; they must have addresses of the right
    network and reach names, services and each other.
  - All of it goes through the API and may be repeated. It is an action plugin and runs on the controller only
    (C(run_once)).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: partial
    description: Says that the nodes would be turned over, and looks at nothing.
  diff_mode:
    support: none
    description: There is nothing to show.
options:
  hosts:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  to:
    description: What carries their pods afterwards.
    type: str
    choices: [cilium, flannel]
    default: cilium
  timeout_s:
    description: Seconds to wait for each thing that has to come about on a node.
    type: int
    default: 300
  proof_s:
    description: Seconds in which the small pods must have reached everything.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Let Cilium carry the pods of the nodes of this wave
  ironspan.hybrid.pod_network:
    hosts: "{{ ansible_play_batch }}"
  run_once: true
"""

RETURN = r"""
turned:
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
            "to": {"type": "str", "choices": ["cilium", "flannel"], "default": "cilium"},
            "timeout_s": {"type": "int", "default": 300},
            "proof_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.pod_network runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
