#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: join_token
short_description: Make the bootstrap token of one batch of joining hosts
version_added: "0.1.0"
description:
  - Makes a short-lived bootstrap token in the cluster. It authenticates joining kubelets and may do nothing
    else; hosts find and trust the API by a file they get over SSH, not by the token.
  - Deletes tokens of its own that have expired, and puts back kubeadm's permissions for joining nodes.
  - Callbacks never show the result. Hand C(token) to O(ironspan.hybrid.converge#module:join_token) only.
  - It is an action plugin and runs on the controller only. Use it with C(run_once).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Makes nothing; C(token) is empty then, and converge reports the join as pending.
  diff_mode:
    support: none
    description: A secret is not shown.
options:
  state:
    description: V(absent) deletes the token O(identifier) as soon as the batch is over.
    type: str
    choices: [present, absent]
    default: present
  minutes:
    description: Lifetime of the token.
    type: int
    default: 30
  identifier:
    description: Public part of the token to delete.
    type: str
    default: ""
  hosts:
    description:
      - Hosts that are about to join. A Node of a former life that is still called Ready, although no kubelet
        runs on its host any more, is called so no longer, because kubeadm would wait for that.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Make one join token that lives as long as this batch
  ironspan.hybrid.join_token:
  register: node_join
  run_once: true
  no_log: true

- name: Delete it when the batch has joined
  ironspan.hybrid.join_token:
    state: absent
    identifier: "{{ node_join.identifier }}"
  run_once: true
"""

RETURN = r"""
token:
  description: The token. A secret.
  returned: when O(state=present)
  type: str
identifier:
  description: Its public part.
  returned: when O(state=present)
  type: str
  sample: 07401b
at_once:
  description: How many hosts may join at the same time, see docs/sizes.md.
  returned: when O(state=present)
  type: int
  sample: 50
expires:
  description: When it expires.
  returned: when O(state=present), not in check mode
  type: str
  sample: "2026-11-21T20:30:00Z"
permissions:
  description: Objects of kubeadm that had to be put back.
  returned: when O(state=present), not in check mode
  type: list
  elements: str
stopped:
  description: Hosts whose Nodes were still called Ready without a kubelet.
  returned: when O(state=present), not in check mode
  type: list
  elements: str
deleted:
  description: Identifiers of the tokens that were deleted.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "minutes": {"type": "int", "default": 30},
            "identifier": {"type": "str", "default": ""},
            "hosts": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.join_token runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
