#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_reboot
short_description: Reboot a drained node on which a change waits for a boot
version_added: "0.4.0"
description:
  - Does nothing on a host that has no reason. Otherwise it is M(ansible.builtin.reboot), and the host has
    C(site_boot_timeout_seconds) until it answers with another boot ID.
  - It does not drain. Use it between M(ironspan.hybrid.node_drain) and M(ironspan.hybrid.upgrade_gate).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Nothing is rebooted.
  diff_mode:
    support: none
    description: There is nothing to show.
options:
  because:
    description: What waits for a boot, C(facts.reboots) of M(ironspan.hybrid.converge). Empty is no reboot.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Reboot the nodes on which a change waits for a boot
  ironspan.hybrid.node_reboot:
    because: "{{ changed_nodes.facts.reboots }}"
"""

RETURN = r"""
rebooted:
  description: Whether it was, or in check mode would be.
  returned: always
  type: bool
elapsed:
  description: Seconds until it answered.
  returned: when it was rebooted
  type: int
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"because": {"type": "list", "elements": "dict", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="node_reboot runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
