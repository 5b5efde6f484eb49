#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: identity_roles
short_description: Give people the roles that the site declares
version_added: "0.2.0"
description:
  - Makes the named roles and the bindings of C(identity_bindings), and removes bindings that are no longer
    declared. Without C(identity_tenant_id) it removes them all.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Compares, and changes nothing.
  diff_mode:
    support: full
    description: Shows what differs of each object.
"""

EXAMPLES = r"""
- name: Give people their roles
  ironspan.hybrid.identity_roles:
"""

RETURN = r"""
objects:
  description: Kind and name of the objects that differed.
  returned: success
  type: list
  elements: str
removed:
  description: Kind and name of what is no longer declared.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="ironspan.hybrid.identity_roles runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
