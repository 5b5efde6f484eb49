#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_pairs
short_description: Let idle GPU nodes test each other in pairs
version_added: "0.1.0"
description:
  - Lets two idle nodes of a rack test what lies between them, those first whose last such test is the longest
    ago, and waits for what comes out. Where a pair fails, both are tested with a third node, which says which
    of the two it was.
  - It fails when a pair failed. A node that is bad is told to the repair controller by an annotation.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says who would test whom, and asks nobody.
  diff_mode:
    support: none
    description: What it does is in the result.
options:
  most:
    description: Pairs that test each other at the same time.
    type: int
    required: true
  days:
    description: How old the last such test of a node has to be.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Let idle nodes test each other
  ironspan.hybrid.gpu_pairs:
    most: 4
    days: 7
  run_once: true
"""

RETURN = r"""
tested:
  description: Each pair, and how it went.
  returned: success
  type: list
  elements: str
bad:
  description: Each node that was found to be bad, and the tests that say so.
  returned: success
  type: dict
left:
  description: Each other node, and why it was not tested.
  returned: success
  type: dict
notes:
  description: All of it for people, a line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "most": {"type": "int", "required": True},
            "days": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.gpu_pairs runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
