# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where the tasks of the controller run, whatever the limit."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limit import leaves_localhost_out

DOCUMENTATION = r"""
---
name: controller
short_description: Pattern of hosts for plays that work on the controller
version_added: "0.2.0"
description:
  - Returns V(localhost); when C(--limit) leaves localhost out, V(all), which then means the limit's hosts.
  - A play with this pattern is not skipped under C(--limit). Its tasks need C(run_once), and actions that
    need no connection to the host.
author:
  - The ironspan developers
"""

EXAMPLES = r"""
- name: Check the inventory
  hosts: "{{ lookup('ironspan.hybrid.controller') }}"
  gather_facts: false
  tasks:
    - name: Check every variable, group and host of the site
      ironspan.hybrid.validate:
      run_once: true
"""

RETURN = r"""
_raw:
  description: One pattern.
  type: list
  elements: str
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """The lookup ``ironspan.hybrid.controller``."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[t.Any]:
        """Return the pattern."""
        if terms:
            raise AnsibleLookupError("controller takes no terms")
        return ["all" if leaves_localhost_out(variables or {}) else "localhost"]
