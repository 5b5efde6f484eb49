#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds the certificates of one host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: certificates
short_description: Find the certificates that a host has
version_added: "0.2.0"
description:
  - Reads the certificates of etcd, the control plane, the kubelet, kubeconfigs and the load balancer, when
    each file was written, and when the programs that use them were started. Private keys are not read out.
  - The action plugin of the same name keeps what it finds for C(ironspan.hybrid.certificates_report), which
    says what the certificates are and when they end.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Nothing is ever changed.
  diff_mode:
    support: none
    description: Nothing is ever changed.
options:
  root:
    description: Folder to treat as the root of the host. Only tests use another than V(/).
    type: path
    default: /
"""

EXAMPLES = r"""
- name: Read the certificates
  ironspan.hybrid.certificates:
"""

RETURN = r"""
certificates:
  description: Path, field of a kubeconfig, and PEM of each. The action returns their number instead.
  returned: success
  type: list
  elements: dict
unreadable:
  description: Files in which no certificate can be read.
  returned: success
  type: list
  elements: str
written:
  description: Unix time at which each file was written.
  returned: success
  type: dict
started:
  description: Unix time at which each program that uses them was started.
  returned: success
  type: dict
public_keys:
  description: The keys that tokens of service accounts are checked with, PEM.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin sends what the host executes."""
    module = AnsibleModule(argument_spec={})
    module.fail_json(msg="ironspan.hybrid.certificates is run by its action plugin, which was not found")


if __name__ == "__main__":
    main()
