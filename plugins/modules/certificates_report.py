#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: certificates_report
short_description: Report when certificates end
version_added: "0.2.0"
description:
  - Says of every certificate that C(ironspan.hybrid.certificates) found in this run, and of the authorities
    in the PKI store, what it is for, who signed it, when it ends and who renews it.
  - Names what is due and what is wrong, such as hosts that did not answer, files without a certificate, and
    certificates of authorities that are not this site's or were dropped.
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
options:
  days:
    description: What ends within as many days is due.
    type: int
    default: 30
  fail_when_due:
    description: Fail when something is due or wrong.
    type: bool
    default: false
  everything:
    description: Show a line a certificate, also where many hosts have the same kind.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Report
  ironspan.hybrid.certificates_report:
    days: 60
  run_once: true
"""

RETURN = r"""
report:
  description: All certificates, what is due, what is wrong, and where each authority stands.
  returned: success
  type: dict
text:
  description: The same as a table.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "days": {"type": "int", "default": 30},
            "fail_when_due": {"type": "bool", "default": False},
            "everything": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="certificates_report runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
