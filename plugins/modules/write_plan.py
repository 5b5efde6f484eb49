#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: write_plan
short_description: Write down what a run would do
version_added: "0.1.0"
description:
  - Puts together what the action C(ironspan.hybrid.converge) with the mode C(plan) found on the hosts of this
    run, and a server-side dry run of the objects of the cluster.
  - Writes one file of canonical JSON that can be read, signed and applied, and holds no secrets.
  - It is an action plugin and runs on the controller only. Run it on C(localhost).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Writes nothing.
  diff_mode:
    support: none
    description: The plan is the diff.
options:
  file:
    description: The file to write, or a folder in which a name is made from the site and the time.
    type: path
    default: .
  roles_folder:
    description: Folder of the roles. The collection's own by default.
    type: path
"""

EXAMPLES = r"""
- name: Write the plan
  ironspan.hybrid.write_plan:
    file: change-4711.plan.json
"""

RETURN = r"""
path:
  description: The file that was written.
  returned: success
  type: str
digest:
  description: SHA-256 that identifies the plan.
  returned: success
  type: str
summary:
  description: Counts of hosts, changes, interruptions, and the estimated time in seconds.
  returned: success
  type: dict
plan_warnings:
  description: What a reviewer should know.
  returned: success
  type: list
  elements: str
approvals_needed:
  description: How many people must sign it.
  returned: success
  type: int
destructive:
  description: Whether it has steps that cannot be undone, which need consent when it is applied.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"file": {"type": "path", "default": "."}, "roles_folder": {"type": "path"}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.write_plan runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
