#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: validate
short_description: Check a whole inventory before any host is contacted
version_added: "0.1.0"
description:
  - Reads the inventory of the run, all of it whatever C(--limit) says, into a typed site and checks it.
  - Reports every problem at once, each with file and line, what is wrong, and what to write instead.
  - Makes what is missing in the site's PKI store, unless in check mode.
  - Renders every host's document for the actions that follow.
  - Refuses variables C(ironspan_...) of the command line that the operation does not declare, and values of
    another type. The operation is the playbook that C(ansible-playbook) was started with.
  - It is an action plugin and runs on the controller only. Run it on C(localhost).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Checks everything and makes nothing.
  diff_mode:
    support: none
    description: There is nothing to show.
options:
  roles_folder:
    description:
      - Folder of the roles whose variables are known and whose templates are rendered.
      - The collection's own by default.
    type: path
  purpose:
    description:
      - What the run is going to do. V(apply) and V(reset) lock the site until the run ends, whatever way.
      - V(apply) insists on a plan where the site wants approvals, and checks the one in C(ironspan_plan),
        its digest, site, expiry and signatures. Documents come from the plan then.
      - V(read) checks the inventory and what the run is asked for, for operations that need no documents.
    type: str
    choices: [read, check, plan, apply, reset]
    default: check
  leaving:
    description: Hosts that are being removed; documents of the others are written without them.
    type: list
    elements: str
  operation:
    description:
      - What the run does, by the name of its playbook. A plan of another operation is refused.
      - When left out, any plan will do.
    type: str
"""

EXAMPLES = r"""
- name: Check the inventory
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Check every variable, group and host of the site
      ironspan.hybrid.validate:
"""

RETURN = r"""
site:
  description: Name of the site.
  returned: success
  type: str
hosts:
  description: How many hosts the site has.
  returned: success
  type: int
places:
  description: Names of the hosts by side of the link (azure, on_prem) and rack, for reports.
  returned: success
  type: dict
documents:
  description: How many documents were written into the temporary folder of this run.
  returned: success
  type: int
made:
  description: What was made in the PKI store.
  returned: success
  type: list
  elements: str
expressions:
  description: Which values of the inventory are expressions, each with file and line.
  returned: when only checking, and there are some
  type: list
  elements: str
plan:
  description: SHA-256 of the plan that is applied.
  returned: with a plan
  type: str
approved_by:
  description: Names of the allowed signers who approved it.
  returned: with a plan
  type: list
  elements: str
inventory_moved:
  description: Whether the inventory was changed after the plan was made.
  returned: with a plan
  type: bool
kept:
  description: Folder on the controller that keeps the plan and its report.
  returned: with a plan
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "roles_folder": {"type": "path"},
            "purpose": {"type": "str", "default": "check"},
            "operation": {"type": "str"},
            "leaving": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.validate runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
