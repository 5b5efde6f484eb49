#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: join_certificates
short_description: Sign the certificates that a batch of hosts joins with
version_added: "0.1.0"
description:
  - Hosts that are prepared make a key and ask for a certificate for the node that they will be. This signs
    what they asked for in this run, for an hour, each for its own name and no other, as its document says.
  - C(ironspan.hybrid.converge) with V(join) among its C(inputs) sends it when the host joins. A host that has
    none by then asks in that execution, which takes a second one.
  - It talks to the PKI store only. It is an action plugin and runs on the controller only. Use it with
    C(run_once).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Signs nothing.
  diff_mode:
    support: none
    description: Certificates are not shown.
options:
  hosts:
    description: Hosts that are about to join. Those that asked for nothing are passed over.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Sign what the hosts asked for, each for itself
  ironspan.hybrid.join_certificates:
    hosts: "{{ ansible_play_hosts }}"
  run_once: true
"""

RETURN = r"""
signed:
  description: Hosts that have a certificate now.
  returned: success
  type: list
  elements: str
refused:
  description: Why other hosts got none, by host. They fail when they join.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"hosts": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(
        msg="ironspan.hybrid.join_certificates runs on the controller only, by its action plugin"
    )


if __name__ == "__main__":
    main()
