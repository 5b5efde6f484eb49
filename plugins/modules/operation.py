#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: operation
short_description: Work out what an operation has to do, and refuse what must not be done
version_added: "0.1.0"
description:
  - Works out the steps of an operation from the inventory and from the state of the cluster. Changes nothing.
  - Refuses what would lose a quorum or the like, with the numbers; what destroys data without
    C(ironspan_allow_destructive); and, with a plan in C(ironspan_plan), steps that the plan does not have.
  - Puts the hosts of the steps, in their order, into the group C(__ironspan_targets) for the plays that
    follow.
  - It is an action plugin and runs on the controller only. Run it on C(localhost).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Shows the steps.
  diff_mode:
    support: none
    description: The steps are the diff.
options:
  name:
    description: The operation, by the name of its playbook.
    type: str
    required: true
  mode:
    description:
      - V(plan) keeps the steps for C(ironspan.hybrid.write_plan), and puts the hosts whose documents the plan
        compares into the group C(__ironspan_compared).
    type: str
    choices: [apply, plan]
    default: apply
"""

EXAMPLES = r"""
- name: Work out what it takes to remove a worker
  ironspan.hybrid.operation:
    name: node_remove
"""

RETURN = r"""
steps:
  description: What is to be done, in order.
  returned: success
  type: list
  elements: dict
hosts:
  description: The hosts of the steps, in their order.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["apply", "plan"], "default": "apply"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.operation runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
