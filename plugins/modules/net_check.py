#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: net_check
short_description: Say what the network between the hosts of a site is like
version_added: "0.3.0"
description:
  - Puts together what hosts answered to C(ironspan.hybrid.host_health) about the network, as latency and loss
    by place, and says what is wrong and what fixes it.
  - Changes nothing. See docs/net-check.md.
  - It is an action plugin and runs on the controller only, before the hosts are asked and after it.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: There is nothing to change.
  diff_mode:
    support: none
    description: There is nothing to change.
options:
  mode:
    description: V(prepare) decides what hosts are to be asked; V(examine) shows the page.
    type: str
    choices: [prepare, examine]
    default: examine
  report:
    description: File to write the machine-readable report into.
    type: path
    default: ""
  roles_folder:
    description: Folder of the roles. The collection's own by default.
    type: path
"""

EXAMPLES = r"""
- name: Say what the network is like
  ironspan.hybrid.net_check:
    report: network.json
"""

RETURN = r"""
report:
  description: The machine-readable report. C(exit_code) is 0 (well), 1 (not), or 4 (nobody answered).
  returned: with mode examine
  type: dict
  sample: {schema: 1, kind: net-check, site: lab, healthy: true, exit_code: 0, matrix: {}, checks: []}
hosts:
  description: How many hosts the inventory has.
  returned: with mode prepare
  type: int
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["prepare", "examine"], "default": "examine"},
            "report": {"type": "path", "default": ""},
            "roles_folder": {"type": "path"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.net_check runs on the controller; its action plugin was not found")


if __name__ == "__main__":
    main()
