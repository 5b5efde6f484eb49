#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: azure_host_keys
short_description: Record the SSH host keys of a site's machines in Azure
version_added: "0.3.0"
description:
  - Has Azure's control plane read the public host keys of machines that are new (run command), and records
    them in the file C(azure_known_hosts). Lines of machines that left go.
  - Where C(azure_known_hosts) names no file, nothing is asked.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Machines are listed, and nothing is read on them or written.
  diff_mode:
    support: none
    description: Keys are not shown.
"""

EXAMPLES = r"""
- name: Record the host keys of machines in Azure
  ironspan.hybrid.azure_host_keys:
  run_once: true
"""

RETURN = r"""
new:
  description: Machines whose keys were recorded, or would be.
  returned: when there is an estate
  type: list
  elements: str
left:
  description: Machines whose keys were taken out, because they are not there any more.
  returned: when there is an estate
  type: list
  elements: str
unknown:
  description: Machines whose keys could not be read, and why.
  returned: when there is an estate
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={},
        supports_check_mode=True,
    )
    module.fail_json(
        msg="ironspan.hybrid.azure_host_keys runs on the controller; its action plugin was not found"
    )


if __name__ == "__main__":
    main()
