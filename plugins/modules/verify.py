#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify
short_description: Check the whole cluster and show the evidence
version_added: "0.1.0"
description:
  - Checks in one batch that the API is ready at the right version, that every node of the inventory is
    Ready at its version and address, that all etcd members are healthy, alike and one cluster, that DNS
    answers, and that pods on every node reach each other and a service, in runc and, where there is gVisor,
    in gVisor.
  - Talks to the API and to etcd only. The namespace it makes for its pods is deleted afterwards, also when
    it is interrupted; what a killed run left is deleted by the next one.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: partial
    description: Leaves out the pods, because they are objects in the cluster.
  diff_mode:
    support: none
    description: Nothing stays changed.
options:
  timeout:
    description: How many seconds to wait for nodes and pods that are not ready yet.
    type: int
    default: 120
  report:
    description: File to write the machine-readable report into. See docs/verify.md for its schema.
    type: path
    default: ""
  image:
    description: Image of the pods, a busybox.
    type: str
    default: docker.io/library/busybox:1.37.0
"""

EXAMPLES = r"""
- name: Check the cluster and collect the evidence
  ironspan.hybrid.verify:
    report: verify.json
"""

RETURN = r"""
report:
  description: The machine-readable report.
  returned: success or failure
  type: dict
  sample: {schema: 1, kind: verify, site: lab, ok: true, seconds: 9.1, checks: []}
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "timeout": {"type": "int", "default": 120},
            "report": {"type": "path", "default": ""},
            "image": {"type": "str", "default": "docker.io/library/busybox:1.37.0"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.verify runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
