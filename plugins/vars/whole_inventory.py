# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Refuses every run on an inventory that Ansible would read only in part. It brings no variables."""

from __future__ import annotations

import typing as t

from ansible import context
from ansible.errors import AnsibleParserError
from ansible.plugins.vars import BaseVarsPlugin
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.inventory import has_password
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import marks_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import said_of

DOCUMENTATION = r"""
---
name: whole_inventory
short_description: Refuses an inventory that Ansible would read only in part
version_added: "0.3.0"
description:
  - Reads the files of the inventory before the variables of the first host are asked for, whatever the
    playbook, and ends the run with exit code 2 when one of them is not YAML or INI, has a form of which
    Ansible would leave something out with a warning, or only looks as if it were read.
  - It brings no variables. It stands before C(host_group_vars) in C(vars_plugins_enabled), because that one
    stops at the first file that it cannot read, and names it not always.
author:
  - The ironspan developers
options: {}
"""


class InventoryRefused(AnsibleParserError):  # type: ignore[misc]
    """The inventory has problems; all of them are in the message."""

    _exit_code = 2


class VarsModule(BaseVarsPlugin):  # type: ignore[misc]
    """The vars plugin ``ironspan.hybrid.whole_inventory``."""

    _checked: t.ClassVar[bool] = False

    def get_vars(self, loader: t.Any, path: str, entities: t.Any, cache: bool = True) -> dict[str, t.Any]:
        """Return nothing, after the inventory was found whole.

        Raises:
            InventoryRefused: it is not.
        """
        if not VarsModule._checked:
            sources = [str(source) for source in context.CLIARGS.get("inventory") or ()]
            misread = marks_of_run(sources, has_password(loader)).misread
            if misread:
                raise InventoryRefused(said_of(sorted(misread)))
            VarsModule._checked = True
        return {}
