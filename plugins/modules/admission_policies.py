#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: admission_policies
short_description: Put the site's admission policies in force
version_added: "0.1.0"
description:
  - Makes policies of the file that C(admission_policy_file) names, has the API server compile their
    expressions, tries them on a copy of every kind of pod that is there, and applies them.
  - Refuses policies that pods of the system could not be made again under, and changes nothing then.
  - Policies of an earlier file that the present one does not have any more are removed.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Compiles and compares, and tries nothing, because that makes objects for a moment.
  diff_mode:
    support: full
    description: Shows what differs of each object.
options:
  state:
    description:
      - V(present) puts them in force. V(tried) only tries those that are not in force yet, before API
        servers read them from files; where they no longer will, it makes objects of them first.
    type: str
    choices: [present, tried]
    default: present
"""

EXAMPLES = r"""
- name: Put the admission policies in force
  ironspan.hybrid.admission_policies:
"""

RETURN = r"""
objects:
  description: Kind and name of the objects that differed.
  returned: success
  type: list
  elements: str
removed:
  description: Kind and name of the policies that are no longer declared.
  returned: success
  type: list
  elements: str
refused:
  description: Pods that are not the system's and could not be made again, each with the reason.
  returned: when policies were tried
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"state": {"type": "str", "choices": ["present", "tried"], "default": "present"}},
        supports_check_mode=True,
    )
    module.fail_json(
        msg="ironspan.hybrid.admission_policies runs on the controller only, by its action plugin"
    )


if __name__ == "__main__":
    main()
