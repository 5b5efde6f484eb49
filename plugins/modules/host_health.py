#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Looks at a host and changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_health
short_description: Look at the health of one host, in one execution
version_added: "0.2.0"
description:
  - Reads disks, services, certificates, an unfinished transaction of the engine, the clock, and how the host
    differs from its document. Asks the network what fits through the link, whether names are answered and how
    far the API is.
  - Changes nothing on the host, in check mode or not.
  - Playbooks use the action plugin of the same name, which sends the host's document, says whom to probe, and
    keeps the answer for C(ironspan.hybrid.doctor). It takes O(root) and C(roles_folder), and reports a host
    that cannot be reached instead of failing.
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
  document:
    description: The desired state to compare with, see C(ironspan.hybrid.converge). Not compared without one.
    type: dict
  probes:
    description:
      - What to ask the network. V(peers) is a list of V(name), V(address) and V(mtu) (bytes), V(dns) has
        V(server) and V(name), V(api) has V(host) and V(port). C(ironspan.hybrid.net_check) asks for more.
    type: dict
    default: {}
  units:
    description: Services whose state is told. The action names those of all layers.
    type: list
    elements: str
    default: []
  root:
    description: Folder to treat as the root of the host. Only tests use another than V(/).
    type: path
    default: /
"""

EXAMPLES = r"""
- name: Look at the host
  ironspan.hybrid.host_health:
"""

RETURN = r"""
health:
  description: What was found.
  returned: when the host can be reached
  type: dict
  sample: {time_unix: 1763769600.0, disks: [], units: {}, certificates: [], network: {}, drift: {}}
unreachable_because:
  description: Why the host cannot be reached. Only the action returns it.
  returned: when it cannot
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin sends what the host executes."""
    module = AnsibleModule(argument_spec={})
    module.fail_json(msg="ironspan.hybrid.host_health is run by its action plugin, which was not found")


if __name__ == "__main__":
    main()
