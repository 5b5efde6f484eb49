#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cilium_rollout
short_description: Wait until Cilium's agents and operator run as declared
version_added: "0.3.0"
description:
  - Waits until every node has an agent of Cilium that is ready and as its DaemonSet is now, and until the
    operator is as its Deployment is now. Fails with the names of the nodes, and what is known of the reason,
    when nothing more comes up.
  - Nodes whose kubelets do not report are not waited for.
  - Does nothing where the site has no Cilium, and in check mode.
  - It is an action plugin and runs on the controller only, once for the whole site.
options:
  patience:
    type: int
    default: 600
    description:
      - Seconds in which at least one more node has to come up. A whole rollout may take longer.
      - An agent compiles its programs when it starts, which took three minutes on a machine with many times
        as much to do as it has cores.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Nothing is ever changed.
  diff_mode:
    support: none
    description: There is nothing to show.
"""

EXAMPLES = r"""
- name: Wait for Cilium
  ironspan.hybrid.cilium_rollout:
  run_once: true
"""

RETURN = r"""
silent:
  description: Nodes that were not waited for.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"patience": {"type": "int", "default": 600}},
        supports_check_mode=True,
    )
    module.fail_json(msg="cilium_rollout runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
