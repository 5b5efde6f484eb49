#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: join_ready
short_description: Make the cluster ready for one batch of joining hosts
version_added: "0.1.0"
description:
  - Puts back what nodes need to renew their certificates and to have them approved, if somebody took it away.
  - Deletes bootstrap tokens that earlier releases made and did not come to delete; none is made any more.
  - Says of a Node of a former life that is still called Ready, although no kubelet runs on its host any more,
    that it is not, because kubeadm would wait for that.
  - It is an action plugin and runs on the controller only. Use it with C(run_once).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Changes nothing.
  diff_mode:
    support: none
    description: There is nothing to compare.
options:
  hosts:
    description: Hosts that are about to join.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Make the cluster ready for the batch
  ironspan.hybrid.join_ready:
    hosts: "{{ ansible_play_hosts }}"
  register: nodes_join
  run_once: true
"""

RETURN = r"""
at_once:
  description: How many hosts may join at the same time, see docs/sizes.md.
  returned: success
  type: int
  sample: 50
permissions:
  description: Objects that had to be put back.
  returned: not in check mode
  type: list
  elements: str
stopped:
  description: Hosts whose Nodes were still called Ready without a kubelet.
  returned: not in check mode
  type: list
  elements: str
deleted:
  description: Identifiers of the tokens that were deleted.
  returned: not in check mode
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"hosts": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.join_ready runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
