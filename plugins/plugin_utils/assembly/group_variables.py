# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Variables that all hosts of an inventory have, for a plugin that has to know them before it has hosts."""

from __future__ import annotations

import typing as t
from collections.abc import Collection
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import unread

_PROBE = "__ironspan_probe"


def variables_of_all(folder: Path, loader: t.Any, names: Collection[str]) -> dict[str, t.Any]:
    """Return variables of the group ``all`` of an inventory, with their templates resolved.

    Our own plugins add nothing meanwhile. The inventory's other problems are told when a run begins.

    Args:
        folder: of the inventory.
        loader: ansible's ``DataLoader``, for vault secrets.
        names: of the variables; those that are not written are left out.

    Raises:
        AnsibleError: a file cannot be read, or a template not resolved.
    """
    from ansible.inventory.manager import InventoryManager
    from ansible.template import Templar
    from ansible.vars.manager import VariableManager

    with unread.without_plugins():
        manager = InventoryManager(loader=loader, sources=[str(folder)])
        manager.add_host(_PROBE, "all")
        variables = VariableManager(loader=loader, inventory=manager)
        found = variables.get_vars(host=manager.get_host(_PROBE), include_hostvars=False)
    templar = Templar(loader=loader, variables=found)
    return {name: templar.template(found[name]) for name in names if name in found}
