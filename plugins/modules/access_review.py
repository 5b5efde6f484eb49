#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: access_review
short_description: Review who can do what in the cluster
version_added: "0.2.0"
description:
  - Reads all roles and bindings and says who can do what, where there are wildcards and ways to more rights,
    what is given to everybody, and which bindings lead nowhere.
  - With audit logs of the API servers it also says which bindings nobody used.
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
  audit_logs:
    description: Audit logs of all API servers, on the controller. Those compressed with gzip are read too.
    type: list
    elements: path
    default: []
  everything:
    description: Show bindings that every cluster has too.
    type: bool
    default: false
  subject:
    description: Show only subjects that have this in their kind or name.
    type: str
    default: ""
  can:
    description:
      - A verb and a resource, to show who may do that instead of everybody's rights. The resource is
        C(RESOURCE) or C(RESOURCE.GROUP), perhaps with C(/SUBRESOURCE) behind it.
    type: list
    elements: str
    default: []
  namespace:
    description: Where O(can) is asked for; without it bindings of every namespace count.
    type: str
    default: ""
  fail_on_findings:
    description: Fail when something is found that nothing explains.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Who may run commands in containers
  ironspan.hybrid.access_review:
    can: [create, pods/exec]
  run_once: true
"""

RETURN = r"""
report:
  description: Bindings with their rules, findings, and what the audit logs say of them.
  returned: success
  type: dict
text:
  description: The same for people.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "audit_logs": {"type": "list", "elements": "path", "default": []},
            "everything": {"type": "bool", "default": False},
            "subject": {"type": "str", "default": ""},
            "can": {"type": "list", "elements": "str", "default": []},
            "namespace": {"type": "str", "default": ""},
            "fail_on_findings": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.access_review runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
