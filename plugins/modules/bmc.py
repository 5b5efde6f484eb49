#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: bmc
short_description: Ask management controllers of servers, or switch power and lights
version_added: "0.4.0"
description:
  - Speaks Redfish with the BMCs of servers, many at a time, with the accounts in the PKI store.
  - Every certificate is verified, and a server that is not the expected one is left alone.
  - Power is believed only when everything that can be read of it says the same. See docs/bmc.md.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says how it is and what would be switched.
  diff_mode:
    support: none
    description: There is no text that changes.
options:
  ask:
    description: What to do.
    type: str
    choices: [show, log, light, power]
    required: true
  expected:
    description: File of the servers that are expected.
    type: path
    required: true
  servers:
    description: Which of them, by name; all when empty.
    type: list
    elements: str
    default: []
  factory:
    description: File of the accounts that BMCs come with, for those that have none of the site's.
    type: path
    default: ""
  entries:
    description: How many entries of the logs of each server, the newest.
    type: int
    default: 200
  worse_than:
    description: Only entries of a higher severity.
    type: str
    choices: [OK, Warning]
  light:
    description: How the light shall be.
    type: str
    choices: ["on", "off"]
  power:
    description: How the power shall be; V(graceful) lets the operating system shut down and cuts nothing.
    type: str
    choices: ["on", "off", graceful, cycle]
  allow_destructive:
    description: Consent to take the power from servers.
    type: bool
    default: false
  report:
    description: File to write the answers into.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Show who answers
  ironspan.hybrid.bmc:
    ask: show
    expected: racks.csv
"""

RETURN = r"""
report:
  description: By name of the server what its BMC said, or C(error).
  returned: always
  type: dict
  sample: {gpu-1: {serial: SN0001, power: "On"}}
text:
  description: The same for people.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "ask": {"type": "str", "choices": ["show", "log", "light", "power"], "required": True},
            "expected": {"type": "path", "required": True},
            "servers": {"type": "list", "elements": "str", "default": []},
            "factory": {"type": "path", "default": ""},
            "entries": {"type": "int", "default": 200},
            "worse_than": {"type": "str", "choices": ["OK", "Warning"]},
            "light": {"type": "str", "choices": ["on", "off"]},
            "power": {"type": "str", "choices": ["on", "off", "graceful", "cycle"]},
            "allow_destructive": {"type": "bool", "default": False},
            "report": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.bmc runs on the controller; its action plugin was not found")


if __name__ == "__main__":
    main()
