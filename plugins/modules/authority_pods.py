#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: authority_pods
short_description: Restart pods of the platform that do not notice another authority
version_added: "0.2.0"
description:
  - Pods trust the API by a file that the cluster keeps current. Programs that read it only when they start
    (client libraries before Kubernetes 1.36) have to start again before the API shows a certificate of
    another authority. This restarts those in the namespaces of the platform, once, and waits for them.
  - Does nothing in any other stage than V(trust) of the authority V(kubernetes).
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Changes nothing.
  diff_mode:
    support: none
    description: What it does is in the result.
options:
  namespaces:
    description: Where to restart DaemonSets, Deployments and StatefulSets.
    type: list
    elements: str
    default: [kube-system, kube-flannel]
  timeout:
    description: How many seconds to wait.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Restart what reads the authority only once
  ironspan.hybrid.authority_pods:
  run_once: true
"""

RETURN = r"""
restarted:
  description: What was restarted.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "namespaces": {"type": "list", "elements": "str", "default": ["kube-system", "kube-flannel"]},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="authority_pods runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
