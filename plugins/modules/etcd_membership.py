#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: etcd_membership
short_description: Start, add, promote and remove etcd members
version_added: "0.1.0"
description:
  - Asks the etcd members how they are, computes the quorum before and after, and changes the
    membership.
  - A step that would lose the quorum is refused, with the numbers. So is a new etcd cluster beside data that
    live.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Changes nothing.
  diff_mode:
    support: none
    description: There is nothing to show.
options:
  state:
    description:
      - V(started) says how the hosts of the group etcd start a new cluster, if it is known of all of them
        that they have no data; it says nothing otherwise.
      - V(learner) adds O(host), which has no data, to the etcd cluster that lives, as a learner.
      - V(voter) waits until O(host) is in sync and promotes it; without O(host) all hosts whose members
        have started and have none, as after a run that was killed.
      - V(absent) removes the member with the name or the address of O(host).
      - V(named) notes in the PKI store when the certificates of all members have the name that members ask
        each other for at their peer ports. Members ask from the next run on.
    type: str
    choices: [started, learner, voter, absent, named]
    required: true
  host:
    description: The host. V(started) takes none, and V(voter) may do without one.
    type: str
    default: ""
  timeout_s:
    description: How long a learner may take to be in sync.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Add the member as a learner
  ironspan.hybrid.etcd_membership:
    state: learner
    host: "{{ inventory_hostname }}"
  register: etcd_join
"""

RETURN = r"""
inputs:
  description: By host, what C(ironspan.hybrid.converge) is given as C(inputs).
  returned: when O(state=started) or O(state=learner)
  type: dict
arithmetic:
  description: Members, votes needed and healthy members, before and after.
  returned: when O(state=learner) or O(state=absent)
  type: str
  sample: "3 members, 2 needed, 3 healthy; after: 2 members, 2 needed, 2 healthy"
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["started", "learner", "voter", "absent", "named"],
                "required": True,
            },
            "host": {"type": "str", "default": ""},
            "timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.etcd_membership runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
