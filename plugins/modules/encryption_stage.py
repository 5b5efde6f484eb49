#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: encryption_stage
short_description: Change how secrets are encrypted in etcd, a stage at a time
version_added: "0.2.0"
description:
  - The variable C(ironspan_encryption_stage) of the run says which stage; see docs/encryption.md.
  - A stage is entered only when every API server was seen to have loaded the configuration of the one before,
    and a key is dropped only when no secret in etcd was written with it.
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
      - V(entered) takes the encryption to the stage.
      - V(followed) waits until API servers have followed it, rewrites secrets where the stage is about
        that, and ends the last one.
    type: str
    choices: [entered, followed]
    required: true
"""

EXAMPLES = r"""
- name: Enter the stage
  ironspan.hybrid.encryption_stage:
    state: entered
  run_once: true
"""

RETURN = r"""
stage:
  description: The stage that the encryption is in now, empty when it is in none.
  returned: success
  type: str
providers:
  description: What API servers read secrets with; the first one writes.
  returned: success
  type: list
  elements: str
followed:
  description: Whether the next stage may be entered.
  returned: when O(state=followed)
  type: bool
reasons:
  description: What the next stage waits for.
  returned: success
  type: list
  elements: str
stored:
  description: Number of secrets by what they are stored with.
  returned: when secrets were rewritten
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"state": {"type": "str", "choices": ["entered", "followed"], "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="encryption_stage runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
