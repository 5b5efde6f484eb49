#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: approve_kubelet_certificates
short_description: Approve kubelet serving certificates that match the inventory
version_added: "0.1.0"
description:
  - Approves requests of the signer C(kubernetes.io/kubelet-serving) when the node asks for itself, under
    its own name, for exactly the name and address it has in the inventory, to serve and nothing else.
    Denies all others and writes the reason into the request.
  - Then waits until every node asked for has a serving certificate.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Decides about what is pending now, and tells nobody.
  diff_mode:
    support: none
    description: The decisions are in the result.
options:
  hosts:
    description:
      - Nodes to wait for. All hosts of the groups C(control_plane) and C(nodes) by default.
      - An empty list waits only for nodes that joined within the last hour and have none yet, which is how a
        run that was killed leaves them.
    type: list
    elements: str
  timeout:
    description: How many seconds to wait.
    type: int
    default: 120
  wait:
    description:
      - Wait for the nodes. Without it what is pending is decided once, by an identity that may do just that.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Approve the kubelets' serving certificates
  ironspan.hybrid.approve_kubelet_certificates:
  run_once: true
"""

RETURN = r"""
approved:
  description: Nodes whose request was approved.
  returned: success
  type: list
  elements: str
denied:
  description: Requests that were denied, with node and reason.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str"},
            "timeout": {"type": "int", "default": 120},
            "wait": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.fail_json(
        msg="ironspan.hybrid.approve_kubelet_certificates runs on the controller only, by its action plugin"
    )


if __name__ == "__main__":
    main()
