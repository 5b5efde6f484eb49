# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site while it is being checked: typed values, and for each the place where it was written."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.inventory import Inventory
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import Marks
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import (
    place_of,
    place_of_setting,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problems
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import Specification


@dataclasses.dataclass(slots=True)
class HostDraft:
    """One host: its groups, what was written for it, and the typed values (defaults included)."""

    name: str
    groups: tuple[str, ...]
    settings: Mapping[str, t.Any]
    values: dict[str, t.Any]


@dataclasses.dataclass(slots=True)
class Draft:
    """Everything a check needs."""

    inventory: Inventory
    specification: Specification
    marks: Marks
    problems: Problems
    hosts: dict[str, HostDraft] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    _home: Place | None = None

    def members(self, group: str) -> list[HostDraft]:
        """Return the hosts of a group, in inventory order."""
        return [host for host in self.hosts.values() if group in host.groups]

    def values(self, variable: str) -> dict[str, t.Any]:
        """Return the value of a variable for every host that has one."""
        return {
            host.name: host.values[variable]
            for host in self.hosts.values()
            if host.values.get(variable) is not None
        }

    def site_value(self, variable: str) -> t.Any:
        """Return a site-wide value: that of the first host that has one."""
        for host in self.hosts.values():
            if host.values.get(variable) is not None:
                return host.values[variable]
        return self.specification.defaults.get(variable)

    def place(self, host: HostDraft, variable: str) -> Place:
        """Return where a variable of a host was written; where the host is, when it is a default."""
        setting = host.settings.get(variable)
        if setting is None:
            return self.host_place(host.name)
        return self.setting_place(setting.key, setting.value)

    def inner_place(self, host: HostDraft, variable: str, *steps: str | int) -> Place:
        """Return where what keys and indexes lead to was written, or else what is around it."""
        place = around = self.place(host, variable)
        setting = host.settings.get(variable)
        value = setting.value if setting is not None else None
        for step in steps:
            inner: Place | None = None
            if isinstance(value, Mapping):
                key = next((key for key in value if key == step), None)
                inner, value = place_of(key), value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
                inner = place_of(value)
            if inner is not None and inner.file == around.file:
                place = inner
        return place

    def setting_place(self, key: t.Any, value: t.Any) -> Place:
        """Return where a key and its value were written."""
        place, known = place_of_setting(key, value), self.marks.variables.get(str(key))
        if place is None or (place.line == 0 and known is not None and known.file == place.file):
            return known or self.home()
        return place  # of JSON it is the file alone

    def site_place(self, variable: str) -> Place:
        """Return where a site-wide variable was written, or where it should be."""
        host = self.writer(variable)
        return self.place(host, variable) if host else self.home()

    def site_file(self, variable: str) -> Path | None:
        """Return a file that a site-wide variable names, relative to the one in which it does; or None."""
        path = self.site_value(variable)
        if not isinstance(path, str) or not path:
            return None
        return Path(self.site_place(variable).file).parent / path

    def writer(self, variable: str) -> HostDraft | None:
        """Return the first host for which a variable was written, None where it is nowhere."""
        return next((host for host in self.hosts.values() if variable in host.settings), None)

    def host_place(self, name: str) -> Place:
        """Return where a host is first named."""
        place = place_of(self.inventory.names.get(name))
        return place or self.marks.hosts.get(name) or self.home()

    def group_place(self, name: str) -> Place:
        """Return where a group is first named."""
        place = place_of(self.inventory.names.get(name))
        return place or self.marks.groups.get(name) or self.home()

    def from_plugin(self, group: str) -> bool:
        """Tell whether a group is in no file that somebody wrote."""
        return place_of(self.inventory.names.get(group)) is None and group not in self.marks.groups

    def member_place(self, group: str, host: str) -> Place:
        """Return where a host is listed in a group."""
        return self.marks.member(group, host) or self.host_place(host)

    def home(self) -> Place:
        """Return the line where site-wide variables begin: the place to add a missing one."""
        if self._home is None:
            self._home = self._find_home()
        return self._home

    def _find_home(self) -> Place:
        layers = self.inventory.group_layers.get("all", {})
        found = [
            place
            for settings in layers.values()
            for name, setting in settings.items()
            if name.startswith("site_")
            and (place := place_of_setting(setting.key, setting.value)) is not None
        ]
        if found:
            return min(found)
        if (file := self.marks.variable_files.get(("group_vars", "all"))) is not None:
            return Place(file, 1)
        return self.marks.groups.get("all") or Place(
            self.marks.first_file or (self.inventory.sources or ["inventory"])[0], 1
        )
