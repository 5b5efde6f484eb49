#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_start
short_description: Choose the control plane that starts the cluster, where there is none
version_added: "0.1.0"
description:
  - Asks the API, and etcd when the API does not answer, whether the cluster exists. Where it does,
    every control plane joins it, whatever its place in the inventory. Where it does not, the first of
    O(hosts) that is bare starts it.
  - The chosen host goes into the group C(__ironspan_starting_control_plane).
  - Refuses when etcd has the cluster, the API does not answer, and a control plane may live that this
    run has not found bare.
  - It is an action plugin and runs on the controller only. Use it with C(run_once).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: It changes nothing in any case.
  diff_mode:
    support: none
    description: There is nothing to show.
options:
  hosts:
    description: Control planes that may start the cluster.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Find out who starts the cluster
  ironspan.hybrid.cluster_start:
    hosts: "{{ ansible_play_hosts }}"
  run_once: true
"""

RETURN = r"""
hosts:
  description: The host that starts the cluster; empty when the cluster exists.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"hosts": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.cluster_start runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
