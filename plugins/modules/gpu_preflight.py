#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_preflight
short_description: Ask idle GPU nodes for a preflight
version_added: "0.1.0"
description:
  - Asks nodes of the group C(gpu) whose GPUs no pod uses for a preflight, those first whose last one is the
    longest ago. The agent of the node runs it, and ends it when something else wants a GPU.
  - It does not wait for verdicts. They are conditions and annotations of the nodes.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says who would be asked, and asks nobody.
  diff_mode:
    support: none
    description: What it does is in the result.
options:
  most:
    description: Nodes that are tested at the same time, those included that are at it already.
    type: int
    required: true
  days:
    description: How old the last preflight of a node has to be.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Ask four idle nodes for a preflight
  ironspan.hybrid.gpu_preflight:
    most: 4
    days: 7
  run_once: true
"""

RETURN = r"""
asked:
  description: Nodes that were asked.
  returned: success
  type: list
  elements: str
left:
  description: Each other node, and why it was not asked.
  returned: success
  type: dict
notes:
  description: The same in lines for people; a run of C(ironspan) ends with them.
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
    module.fail_json(msg="ironspan.hybrid.gpu_preflight runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
