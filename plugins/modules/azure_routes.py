#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: azure_routes
short_description: Write routes to the pods of nodes in Azure
version_added: "0.3.0"
description:
  - Asks the cluster which part of the pod network each node in Azure has.
  - For a site with an estate (C(azure_subscription)) it makes the variable C(azure_pod_routes) of that, as a
    file for C(group_vars). For others it makes a template of Azure's resource manager, with a route table of
    one route for each.
  - Changes nothing and does not speak to Azure. See docs/azure-network.md.
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
  table:
    description: Name of the route table, by default that of the site with C(-pods) behind it.
    type: str
    default: ""
  location:
    description: Region of the virtual network, such as V(westeurope). Needed where the site has no estate.
    type: str
    default: ""
  managed:
    description: Azure Virtual Network Manager keeps the table; it may have 1,000 routes then instead of 400.
    type: bool
    default: false
  report:
    description: File to write the variable or the template into.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Write the routes to pods
  ironspan.hybrid.azure_routes:
    location: westeurope
    report: routes.json
"""

RETURN = r"""
report:
  description: The variable of the estate, or the template.
  returned: always
  type: dict
  sample: {azure_pod_routes: [{node: burst-1, part: 10.244.7.0/24, address: 10.20.8.20}]}
text:
  description: The routes for people.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "table": {"type": "str", "default": ""},
            "location": {"type": "str", "default": ""},
            "managed": {"type": "bool", "default": False},
            "report": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    module.fail_json(
        msg="ironspan.hybrid.azure_routes runs on the controller; its action plugin was not found"
    )


if __name__ == "__main__":
    main()
