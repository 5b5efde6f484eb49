#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ironic_password
short_description: Change the password of the site's own Ironic
version_added: "0.4.0"
description:
  - Part of C(ironic_password.yml), which lets the host of the group C(ironic) follow between the two states.
  - A change that was begun and not proven is resumed; no run makes a second password before.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Changes nothing.
  diff_mode:
    support: none
    description: What it does is a secret.
options:
  state:
    description:
      - V(changed) makes another password in the PKI store.
      - V(proven) waits until Ironic takes it, and insists that the former one is refused.
    type: str
    choices: [changed, proven]
    required: true
"""

EXAMPLES = r"""
- name: Make another password
  ironspan.hybrid.ironic_password:
    state: changed
  run_once: true
"""

RETURN = r"""
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"state": {"type": "str", "choices": ["changed", "proven"], "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironic_password runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
