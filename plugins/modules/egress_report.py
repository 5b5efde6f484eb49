#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: egress_report
short_description: Report what hosts let their pods reach
version_added: "0.3.0"
description:
  - Says of every host which entries of the allow-list are in force, with owner, reason, last day and packets,
    and what was dropped, as C(ironspan.hybrid.egress_rules) found it, registered as C(__ironspan_egress).
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Nothing is ever changed.
  diff_mode:
    support: none
    description: What it does is in the result.
options: {}
"""

EXAMPLES = r"""
- name: Report
  ironspan.hybrid.egress_report:
  run_once: true
"""

RETURN = r"""
report:
  description: Every host's rules, drops and what is wrong.
  returned: success
  type: dict
text:
  description: The same as lines.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="egress_report runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
