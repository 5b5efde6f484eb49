#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs one command of the backup program on a host of the store."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: etcd_backup
short_description: Run a command of the etcd backup program on a host
version_added: "0.3.0"
description:
  - Runs C(ironspan-etcd-backup VERB --json) on the host and returns what it answers. The host's own identity
    reads and writes the backup; the controller never does.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: partial
    description: Only commands that read are run.
  diff_mode:
    support: none
    description: What a command does is in its answer.
options:
  verb:
    description: The command, for example V(list), V(verify), V(drill), V(rebuild).
    type: str
    required: true
  arguments:
    description: What follows it. Never a secret, because every user of the host can read it.
    type: list
    elements: str
    default: []
  changes:
    description: Whether the command changes anything, on the host or in the backup.
    type: bool
    default: false
  program:
    description: Path of the program.
    type: path
    default: /opt/ironspan/etcd-backup/bin/ironspan-etcd-backup
"""

EXAMPLES = r"""
- name: List the backups
  ironspan.hybrid.etcd_backup:
    verb: list
  register: backups

- name: Prove the newest backup
  ironspan.hybrid.etcd_backup:
    verb: drill
    changes: true
"""

RETURN = r"""
answer:
  description: What the program printed, read as JSON.
  returned: success
  type: raw
refused:
  description: Whether the program refused and touched nothing.
  returned: failure
  type: bool
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.backup_program import (
    PROGRAM,
    ProgramError,
    answer_of,
    command,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "required": True},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "changes": {"type": "bool", "default": False},
            "program": {"type": "path", "default": PROGRAM},
        },
        supports_check_mode=True,
    )
    program, verb, changes = (module.params[name] for name in ("program", "verb", "changes"))
    if not os.access(program, os.X_OK):
        module.fail_json(
            msg=f"{program} is not installed on this host. Let site.yml install it: the host belongs into "
            "the group etcd, and etcd_backup_stores says where backups are.",
            refused=True,
        )
    if changes and module.check_mode:
        module.exit_json(changed=True, answer=None, msg=f"{verb} would be run.")
    ended = module.run_command(command(program, verb, module.params["arguments"]))
    try:
        answer = answer_of(verb, *ended)
    except ProgramError as error:
        module.fail_json(msg=str(error), refused=error.refused, answer=error.answer)
    module.exit_json(changed=changes, answer=answer)


if __name__ == "__main__":
    main()
