#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cilium_policies
short_description: Check that Cilium has taken every policy
version_added: "0.3.0"
description:
  - Reads the condition C(Valid) of every CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy, whoever
    made it, and fails when one was rejected. The API takes such a policy, and its pods stay open.
  - Does nothing where O(site_cni) is not V(cilium).
  - It is an action plugin and runs on the controller only, once for the whole site.
options:
  phase:
    type: str
    choices: [kinds, policies]
    default: policies
    description:
      - V(kinds) waits until the cluster knows these kinds, which Cilium's operator makes when it starts.
      - V(policies) waits until each policy was looked at, and judges.
  timeout:
    type: int
    default: 180
    description: Seconds to wait.
  settle:
    type: int
    default: 3
    description: Seconds after which policies are read again, for those that were changed a moment ago.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Nothing is ever changed.
  diff_mode:
    support: none
    description: What it finds is in the result.
"""

EXAMPLES = r"""
- name: Is every policy in force?
  ironspan.hybrid.cilium_policies:
  run_once: true
"""

RETURN = r"""
policies:
  description: Every policy with C(name), C(valid) and the C(message) of Cilium's operator.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "phase": {"type": "str", "choices": ["kinds", "policies"], "default": "policies"},
            "timeout": {"type": "int", "default": 180},
            "settle": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="cilium_policies runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
