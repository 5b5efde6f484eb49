#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: server_drift
short_description: Say how servers differ from what is declared of them
version_added: "0.4.0"
description:
  - Compares the expected servers with what Ironic has of them - their parts as they were measured last, their
    settings, their state, and the operating system that was written to them. See docs/bare-metal.md.
  - It fails when anything differs, and changes nothing.
  - It reads the arguments of the operation C(server_drift) and the site's variables.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: It changes nothing.
  diff_mode:
    support: none
    description: There is no text that changes.
"""

EXAMPLES = r"""
- name: Compare the servers with what is declared of them
  ironspan.hybrid.server_drift:
"""

RETURN = r"""
drift:
  description: Each difference, with server, slot, part, kind, message and remedy.
  returned: when Ironic answers
  type: list
  elements: dict
servers:
  description: How many servers were looked at.
  returned: when Ironic answers
  type: int
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="ironspan.hybrid.server_drift runs on the controller; its action was not found")


if __name__ == "__main__":
    main()
