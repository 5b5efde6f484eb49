#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks the TPM of one host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: attest
short_description: Compare a host's TPM with what was accepted, or accept it
version_added: "0.2.0"
description:
  - Asks the TPM for both of its keys, has it open a credential that only a TPM with both opens, and has it
    sign the measurements of this boot for a nonce. Shows how that differs from what is recorded of the host.
  - With O(accept) it is recorded in that person's name. Certificates of a node whose O(node_attestation) is
    V(require) are signed only for what was recorded so.
  - Without it, what differs is noted beside the record, with the time; C(ironspan doctor) shows it.
  - It fails when what is there was not accepted. Needs C(tpm2-tools) on the host.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says what would be recorded, and records nothing.
  diff_mode:
    support: full
    description: Shows the record.
options:
  accept:
    description: Who accepts what is there now. Nothing is recorded without a name.
    type: str
    default: ""
  named:
    description:
      - Whether this host was named. Where nobody named hosts, those whose O(node_attestation) is V(off) are
        passed over, and nothing is accepted.
    type: bool
    default: true
  roles_folder:
    description: Where the roles are. Only tests use another folder than the collection's.
    type: path
"""

EXAMPLES = r"""
- name: Accept what the servers have booted
  ironspan.hybrid.attest:
    accept: anna
"""

RETURN = r"""
endorsement:
  description: SHA-256 of the TPM's endorsement key (SubjectPublicKeyInfo, DER).
  returned: when the TPM has answered
  type: str
pcrs:
  description: The PCRs of this boot by number, in hexadecimal digits.
  returned: when the TPM has answered
  type: dict
differences:
  description: How it differs from what is recorded, a clause each.
  returned: when the TPM has answered
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin sends what the host executes."""
    spec = {
        "accept": {"type": "str", "default": ""},
        "named": {"type": "bool", "default": True},
        "roles_folder": {"type": "path"},
    }
    module = AnsibleModule(argument_spec=spec)
    module.fail_json(msg="ironspan.hybrid.attest is run by its action plugin, which was not found")


if __name__ == "__main__":
    main()
