#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cilium_alone
short_description: Do the last stage of moving a cluster to Cilium
version_added: "0.3.0"
description:
  - When all nodes of a cluster are moved (M(ironspan.hybrid.pod_network)), lets Cilium's agents enforce
    policies, takes flannel off the nodes and out of the cluster, and kube-proxy out of it.
  - What is left of it is read from the cluster, so a run that was cut off is finished by the next one. There
    is no way back.
  - Does nothing unless O(to=cilium-only).
  - It is an action plugin and runs on the controller only (C(run_once)).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says whether something is left to do.
  diff_mode:
    support: none
    description: There is nothing to show.
options:
  to:
    description: What the run is about.
    type: str
    choices: [cilium, flannel, cilium-only]
    default: cilium
  part:
    description:
      - V(cluster) changes the cluster.
      - V(record) keeps beside the PKI store that the pod network is Cilium now. An inventory that says
        something else is refused from then on.
    type: str
    choices: [cluster, record]
    required: true
  timeout_s:
    description: Seconds to wait for each thing that has to come about; for agents, seconds without progress.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Let the cluster have only Cilium
  ironspan.hybrid.cilium_alone:
    to: cilium-only
    part: cluster
  run_once: true
"""

RETURN = r"""
done:
  description: What was done, such as V(remove-flannel).
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "to": {"type": "str", "choices": ["cilium", "flannel", "cilium-only"], "default": "cilium"},
            "part": {"type": "str", "choices": ["cluster", "record"], "required": True},
            "timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.cilium_alone runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
