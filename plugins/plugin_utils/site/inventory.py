# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads Ansible's inventory once, keeping for every variable the key and the value as they were written.

``VariableManager.get_vars`` would give each host its merged variables, at a cost that grows with the number
of hosts per host, and it loses the keys' positions when dictionaries are merged. Here every group and host is
read once and merged in Ansible's own order (``VARIABLE_PRECEDENCE``); hosts with the same groups share the
result.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ansible import constants
from ansible.inventory.helpers import sort_groups
from ansible.plugins.loader import inventory_loader
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import Marks
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.plugin_file import plugin_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem


class Setting(t.NamedTuple):
    """A variable as written: the key object and the value object, both may carry their position."""

    key: str
    value: t.Any


Settings = dict[str, Setting]

# Set by Ansible for every host; not by people.
_INTERNAL = frozenset({"inventory_file", "inventory_dir"})


def _settings(variables: Mapping[str, t.Any] | None) -> Settings:
    return {str(key): Setting(key, value) for key, value in (variables or {}).items() if key not in _INTERNAL}


@dataclasses.dataclass(slots=True)
class Inventory:
    """What was written, by group and by host.

    Args:
        sources: files and folders of the inventory.
        group_layers: for each group and each of Ansible's three kinds of source, the settings.
        host_settings: settings of single hosts.
        host_groups: for each host (in reading order) its groups from general to special, without ``all``.
        extra: settings from the command line (``-e``).
        names: host and group name to the name object that may carry a position.
        above: for each group those above it, without ``all``.
        ranks: for each group what Ansible sorts the groups of a host by, from general to special.
    """

    sources: list[str]
    group_layers: dict[str, dict[str, Settings]]
    host_settings: dict[str, Settings]
    host_groups: dict[str, tuple[str, ...]]
    extra: Settings
    names: dict[str, t.Any]
    above: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ranks: dict[str, tuple[int, int, str]] = dataclasses.field(default_factory=dict)
    _merged: dict[tuple[str, ...], Settings] = dataclasses.field(default_factory=dict)

    def group_members(self, group: str) -> list[str]:
        """Return the hosts of a group, in reading order."""
        return [host for host, groups in self.host_groups.items() if group in groups]

    def ordered(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Return groups from general to special; those that are not in the inventory come first."""
        return tuple(sorted(groups, key=lambda name: self.ranks.get(name, (0, 0, name))))

    def shared_settings(self, groups: tuple[str, ...]) -> Settings:
        """Return what hosts with exactly these groups inherit, merged in Ansible's order."""
        if groups not in self._merged:
            merged: Settings = {}
            for entry in constants.VARIABLE_PRECEDENCE:
                scope, _separator, kind = entry.partition("_")
                for group in ("all",) if scope == "all" else groups:
                    merged.update(self.group_layers.get(group, {}).get(kind, {}))
            self._merged[groups] = merged
        return self._merged[groups]

    def every_setting(self) -> list[Setting]:
        """Return all settings of all groups and hosts, also of groups without hosts."""
        found = [
            setting
            for layers in self.group_layers.values()
            for settings in layers.values()
            for setting in settings.values()
        ]
        found.extend(setting for settings in self.host_settings.values() for setting in settings.values())
        return found


def read_inventory(manager: t.Any, loader: t.Any, extra_vars: Mapping[str, t.Any] | None = None) -> Inventory:
    """Read an Ansible inventory.

    Args:
        manager: ansible's ``InventoryManager``.
        loader: ansible's ``DataLoader``; its base folder is where play-adjacent group_vars are looked for.
        extra_vars: variables from the command line.

    Returns:
        The inventory as written.
    """
    # There is no public name for the list of sources; VariableManager reads the same attribute.
    sources = [source for source in manager._sources if source]
    play_folder = loader.get_basedir()

    def from_plugins(entity: t.Any) -> dict[str, Settings]:
        return {
            "plugins_inventory": _settings(
                get_vars_from_inventory_sources(loader, sources, [entity], "task")
            ),
            "plugins_play": _settings(get_vars_from_path(loader, play_folder, [entity], "task")),
        }

    group_layers = {
        name: {"inventory": _settings(group.vars), **from_plugins(group)}
        for name, group in manager.groups.items()
    }
    host_settings: dict[str, Settings] = {}
    host_groups: dict[str, tuple[str, ...]] = {}
    ordered: dict[frozenset[str], tuple[str, ...]] = {}
    for name, host in manager.hosts.items():
        layers = from_plugins(host)
        host_settings[str(name)] = {
            **_settings(host.vars),
            **layers["plugins_inventory"],
            **layers["plugins_play"],
        }
        groups = frozenset(str(group.name) for group in host.groups if group.name != "all")
        if groups not in ordered:
            ordered[groups] = tuple(
                str(group.name) for group in sort_groups([g for g in host.get_groups() if g.name != "all"])
            )
        host_groups[str(name)] = ordered[groups]
    return Inventory(
        sources=[str(source) for source in sources],
        group_layers=group_layers,
        host_settings=host_settings,
        host_groups=host_groups,
        extra=_settings(extra_vars),
        names={
            str(name): item.name for items in (manager.groups, manager.hosts) for name, item in items.items()
        },
        above={
            str(name): tuple(
                sorted(str(outer.name) for outer in group.get_ancestors() if outer.name != "all")
            )
            for name, group in manager.groups.items()
        },
        ranks={
            str(name): (group.depth, group.priority, str(group.name))
            for name, group in manager.groups.items()
        },
    )


def sources_in(manager: t.Any) -> Sequence[str]:
    """Return the paths that an inventory manager reads."""
    return [str(source) for source in manager._sources if source]


def has_password(loader: t.Any) -> bool:
    """Tell whether a loader was given a password for what ansible-vault encrypted.

    Args:
        loader: ansible's ``DataLoader``, which has no public name for that.
    """
    vault = getattr(loader, "_vault", None)
    return vault is None or bool(getattr(vault, "secrets", None))


def not_parsed(manager: t.Any, marks: Marks) -> Iterator[Problem]:
    """Yield a problem for each source of hosts that Ansible only warned about, such as a script that failed.

    Args:
        manager: ansible's ``InventoryManager``, which has no public name for what it has read.
        marks: what the files of the inventory say.
    """
    parsed = getattr(getattr(manager, "_inventory", None), "processed_sources", None)
    if parsed is None:  # another ansible-core
        return
    done = {Path(str(source)).absolute() for source in parsed if source}
    for file in marks.inventory_files:
        if Path(file).absolute() not in done:
            yield _unread(Path(file))


def _unread(file: Path) -> Problem:
    """Return why a source of hosts was not read, as far as its kind says."""
    remedy = "correct it, or run it by itself to see more"
    if os.access(file, os.X_OK):
        message = "was not read: its program failed, or printed no inventory in JSON"
        return Problem(str(file), 0, "(inventory)", message, f"run '{file} --list' by itself to see more")
    line, plugin = plugin_of(file)
    if plugin and not inventory_loader.has_plugin(plugin):
        message = f"was not read: there is no plugin {plugin}"
        collection = ".".join(plugin.split(".")[:2])
        remedy = f"install {collection} with ansible-galaxy, or correct the name"
        return Problem(str(file), line, "plugin", message, remedy)
    if plugin:
        message = (
            f"was not read: the plugin {plugin} failed, or takes no file of this name; Ansible warns why"
        )
        remedy = f"see ansible-doc -t inventory {plugin}, and ansible-inventory --list"
        return Problem(str(file), line, "plugin", message, remedy)
    message = "was not read: no inventory plugin takes it; Ansible warns why"
    return Problem(str(file), 0, "(inventory)", message, remedy)
