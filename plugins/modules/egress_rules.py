#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads what one host lets its pods reach, and changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: egress_rules
short_description: Read what a host lets its pods reach
version_added: "0.3.0"
description:
  - Reads the rules and counters of the table that holds pods back, as they are in force, and the file that
    they were loaded from, which knows owners and reasons.
  - C(ironspan.hybrid.egress_report) makes sense of them.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Nothing is ever changed.
  diff_mode:
    support: none
    description: Nothing is ever changed.
options: {}
"""

EXAMPLES = r"""
- name: Read what pods may reach
  ironspan.hybrid.egress_rules:
  register: __ironspan_egress
"""

RETURN = r"""
rules:
  description: What C(nft) prints of the chain that judges pods, as JSON; empty when the table is not loaded.
  returned: success
  type: str
counters:
  description: Packets by counter.
  returned: success
  type: dict
file:
  description: The file that the table is loaded from.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ironspan.hybrid.plugins.module_utils._health import egress, local
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

# In the host's own zone a time in a rule would mean another moment to who reads it elsewhere.
COMMAND = ("env", "TZ=UTC", "nft", "-j", "list", "chain", "inet", "ironspan-egress", "pods")
FILE = "/etc/ironspan-egress.nft"


def main() -> None:
    """Read."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    text = paths.text(FILE) if paths.status(FILE) else ""
    module.exit_json(changed=False, rules=local.output(COMMAND), counters=egress.collect(), file=text)


if __name__ == "__main__":
    main()
