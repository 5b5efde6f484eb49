#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: renew_site_identity
short_description: Give the site another random identity
version_added: "0.1.0"
description:
  - The identity in the PKI store names the etcd cluster and its data folders. C(reset.yml) renews it after
    the data were deleted, so that a member that was away meanwhile cannot come back with old ones.
  - Never use it on a site with a running cluster. Its members would start with empty data folders.
  - It is an action plugin and runs on the controller only, once for the whole site.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Changes nothing.
  diff_mode:
    support: none
    description: The identity is random.
options: {}
"""

EXAMPLES = r"""
- name: Give the site another identity
  ironspan.hybrid.renew_site_identity:
  run_once: true
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="renew_site_identity runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
