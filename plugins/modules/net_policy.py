#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: net_policy
short_description: Say whether a pod reaches something, and by which rule
version_added: "0.3.0"
description:
  - Works out from the cluster's NetworkPolicy objects (with Cilium from its own kinds too), the tables of the
    hosts and the forward proxy's list whether a connection is allowed. Both sides are judged, each rule that
    decided is named, and what data cannot tell is said to be undecided.
  - Changes nothing, asks no host and sends no packet. See docs/net-check.md.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: There is nothing to change.
  diff_mode:
    support: none
    description: There is nothing to change.
options:
  source:
    description: The pod that opens the connection, C(NAMESPACE/POD).
    type: str
    required: true
  target:
    description:
      - Where it goes, C(NAMESPACE/POD:PORT), C(ADDRESS:PORT) or C(NAME:PORT).
      - The name C(SERVICE.NAMESPACE.svc) is that of a service.
        C(/udp) or C(/sctp) behind the port means another protocol than TCP. IPv6 addresses stand in brackets.
    type: str
    required: true
  report:
    description: File to write the machine-readable report into.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Say whether a pod reaches the database
  ironspan.hybrid.net_policy:
    source: team-a/web-0
    target: team-b/postgres-0:5432
"""

RETURN = r"""
report:
  description:
    - The answer. C(outcome) is V(allowed), V(denied), V(partly allowed) or V(not decided).
    - C(routes) says why.
  returned: always
  type: dict
  sample: {schema: 1, kind: net-policy, outcome: denied, exit_code: 1, routes: [], notes: []}
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
            "source": {"type": "str", "required": True},
            "target": {"type": "str", "required": True},
            "report": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.net_policy runs on the controller; its action plugin was not found")


if __name__ == "__main__":
    main()
