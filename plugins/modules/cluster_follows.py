#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_follows
short_description: Wait until controllers and kubelets work with what the API serves
version_added: "0.3.0"
description:
  - After a restore of etcd, waits until the controller manager, the scheduler and every kubelet have
    renewed their leases through the API.
  - Nodes that do not are named; controllers that do not are a failure.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Looks at nothing.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  timeout_s:
    description: How many seconds to wait.
    type: int
    default: 180
"""

EXAMPLES = r"""
- name: See that controllers and kubelets follow
  ironspan.hybrid.cluster_follows:
  run_once: true
"""

RETURN = r"""
following:
  description: Controllers and nodes that follow.
  returned: success
  type: list
  elements: str
silent:
  description: Nodes that do not.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"timeout_s": {"type": "int", "default": 180}}, supports_check_mode=True
    )
    module.fail_json(msg="cluster_follows runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
