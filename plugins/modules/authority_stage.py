#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: authority_stage
short_description: Change a certificate authority for another, a stage at a time
version_added: "0.2.0"
description:
  - The variables C(ironspan_authority) and C(ironspan_authority_stage) of the run say which authority and
    which stage; see docs/certificates.md.
  - A stage is entered only when every host was seen, by C(ironspan.hybrid.certificates) in this run, to have
    followed the one before.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says what would be entered.
  diff_mode:
    support: none
    description: What it does is in the result.
options:
  state:
    description:
      - V(entered) takes the authority to the stage.
      - V(followed) says whether all hosts have followed it, and ends the last one.
    type: str
    choices: [entered, followed]
    required: true
"""

EXAMPLES = r"""
- name: Enter the stage
  ironspan.hybrid.authority_stage:
    state: entered
  run_once: true
"""

RETURN = r"""
stage:
  description: The stage that the authority is in now, empty when it is in none.
  returned: success
  type: str
followed:
  description: Whether the next stage may be entered.
  returned: when O(state=followed)
  type: bool
reasons:
  description: What the next stage waits for.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"state": {"type": "str", "choices": ["entered", "followed"], "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="authority_stage runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
