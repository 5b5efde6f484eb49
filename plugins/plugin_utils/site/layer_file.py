# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a role says of its layer, ``meta/layer.yml``: read strictly, with the line of everything refused.

docs/roles.md explains every key.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problems
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.strict_reader import (
    LOADER,
    StrictReader,
    line_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.variable_file import (
    SCOPES,
    VARIABLES,
    Limit,
    Version,
    read_variables,
)

HOST, CLUSTER, SETTINGS = "host", "cluster", "settings"
"""A layer of hosts; objects of the cluster, of which no host has a part; variables and nothing else."""
HOST_PHASES = (
    "prepare", "etcd", "etcd_events", "etcd_backup", "control_plane", "access", "gpu_repair", "nodes",
)  # fmt: skip
"""The playbooks that converge layers, in the order of site.yml."""
CLUSTER_PHASES = ("network", "names", "isolation")
"""The playbooks that apply objects, in the order of site.yml."""
UPGRADES = ("etcd", "control_plane", "nodes", "etcd_backup", "none")
"""The parts of upgrade.yml; ``none`` for layers without a version."""
CHANGED = ("apart", "together", "one_by_one")
ALL = "all"
"""In ``hosts``: every host has the layer."""
_EVERY_KIND = ("kind", "groups", "scope")
_KEYS: Mapping[str, tuple[str, ...]] = {
    HOST: (
        *_EVERY_KIND, "hosts", "after", "needs", "phase", "also", "upgrade", "member", "changed", "waits_for",
        "units", "chosen_by", "keeps", "back_with",
    ),
    CLUSTER: (*_EVERY_KIND, "after", "phase"),
    SETTINGS: _EVERY_KIND,
}  # fmt: skip
_REQUIRED = {HOST: ("hosts", "phase", "upgrade"), CLUSTER: ("phase",), SETTINGS: ()}


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A group that the layer declares.

    Args:
        purpose: being in it is what a host is there for.
        inside: its hosts must be in one of these groups; anywhere when empty.
    """

    purpose: bool = False
    inside: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Args:
        name: of the role.
        file: where it is described.
        kind: ``host``, ``cluster`` or ``settings``.
        hosts: groups whose hosts have it; ``all`` for every host.
        groups: those that it declares.
        after: layers that a host gets before it.
        needs: layers that its hosts have too, and get before it.
        phase: the playbook that converges it.
        also: other phases that converge it.
        upgrade: the part of upgrade.yml that gives it another version.
        member: it makes a host a member of something, which takes credentials.
        changed: whether its hosts depend on each other: ``apart`` if not, ``together`` when they are changed
            at once, ``one_by_one``.
        waits_for: inputs that a host without any data of it waits for.
        units: services that run wherever it is.
        keeps: ids of resources that stay on a host that does not declare them any more.
        back_with: layers whose rollback takes this one back too.
        chosen_by: variable of the site that names the one layer of several that a site has.
        scope: ``site`` when its variables have one value for the whole site.
        scopes: variable -> its scope, where it is another one.
        limits: variable -> its range.
        versions: variable -> what it chooses.
        lines: what was written (keys joined with dots) -> line.
        variables: variable -> where it is declared.
    """

    name: str
    file: str
    kind: str
    hosts: tuple[str, ...] = ()
    groups: Mapping[str, Group] = dataclasses.field(default_factory=dict)
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    phase: str = ""
    also: tuple[str, ...] = ()
    upgrade: str = "none"
    member: bool = False
    changed: str = CHANGED[0]
    waits_for: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    back_with: tuple[str, ...] = ()
    chosen_by: str = ""
    scope: str = SCOPES[0]
    scopes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, Version] = dataclasses.field(default_factory=dict)
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    variables: Mapping[str, Place] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def place(self, *path: str) -> Place:
        """Return where something of it was written, the file where it was not."""
        return Place(self.file, self.lines.get(".".join(path), 1))


def read_layer(file: Path, problems: Problems) -> Layer | None:
    """Read one file.

    Args:
        file: ``roles/NAME/meta/layer.yml``; the variables are declared beside it.
        problems: gets everything that is wrong with both.

    Returns:
        The layer; None when the file says too little.
    """
    return _Reader(file, problems).layer()


class _Reader(StrictReader):
    """Reads what one role says of its layer."""

    def layer(self) -> Layer | None:
        """Return the layer."""
        self._loader = LOADER(Path(self._file).read_text(encoding="utf-8"))
        try:
            return self._layer(self._loader.get_single_node())
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or error
            place = Place(self._file, mark.line + 1 if mark else 1)
            self._problems.add(place, "(file)", f"is not valid YAML: {reason}", "correct the syntax there")
            return None
        finally:
            self._loader.dispose()

    def _layer(self, root: t.Any) -> Layer | None:
        found = dict(self._entries(root, "", _KEYS[HOST]))
        kind = self._choice(found, "kind", tuple(_KEYS))
        if "kind" not in found:
            self._add(1, "kind", "is not written", f"write kind: {', '.join(_KEYS)}, whichever it is")
        if kind not in _KEYS:
            return None
        for key, node in found.items():
            if key not in _KEYS[kind]:
                self._add(line_of(node), key, f"says nothing for kind: {kind}", "take it out")
        missing = [key for key in _REQUIRED[kind] if key not in found]
        for key in missing:
            self._add(1, key, f"is not written, and kind: {kind} needs it", "write it; see docs/roles.md")
        phases = HOST_PHASES if kind == HOST else CLUSTER_PHASES
        file = Path(self._file).with_name(VARIABLES)
        variables, places = read_variables(file, self._problems)
        return Layer(
            name=Path(self._file).parent.parent.name,
            file=self._file,
            kind=kind,
            hosts=self._names(found, "hosts"),
            groups=dict(self._groups(found)),
            after=self._names(found, "after"),
            needs=self._names(found, "needs"),
            phase=self._choice(found, "phase", phases),
            also=self._names(found, "also", phases),
            upgrade=self._choice(found, "upgrade", UPGRADES) or "none",
            member=self._truth(found, "member"),
            changed=self._choice(found, "changed", CHANGED) or CHANGED[0],
            waits_for=self._names(found, "waits_for"),
            units=self._names(found, "units"),
            keeps=self._names(found, "keeps"),
            back_with=self._names(found, "back_with"),
            chosen_by=str(self._value(found["chosen_by"])) if "chosen_by" in found else "",
            scope=self._choice(found, "scope", SCOPES) or SCOPES[0],
            scopes={name: scope for name, scope, _limit, _version in variables if scope},
            limits={name: limit for name, _scope, limit, _version in variables if limit},
            versions={name: version for name, _scope, _limit, version in variables if version},
            lines=self._lines,
            variables=places,
        )

    def _groups(self, found: Mapping[str, t.Any]) -> Iterator[tuple[str, Group]]:
        if "groups" not in found:
            return
        for name, node in self._entries(found["groups"], "groups", ()):
            path = f"groups.{name}"
            inner = dict(self._entries(node, path, ("purpose", "inside")))
            yield name, Group(self._truth(inner, "purpose", path), self._names(inner, "inside", (), path))
