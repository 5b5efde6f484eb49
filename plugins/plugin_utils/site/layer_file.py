# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a role says of its layer, ``meta/layer.yml``: read strictly, with the line of everything refused.

docs/roles.md explains every key.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problems, nearest

HOST, CLUSTER, SETTINGS = "host", "cluster", "settings"
"""A layer of hosts; objects of the cluster, of which no host has a part; variables and nothing else."""
HOST_PHASES = ("prepare", "etcd", "etcd_events", "etcd_backup", "control_plane", "access", "nodes")
"""The playbooks that converge layers, in the order of site.yml."""
CLUSTER_PHASES = ("network", "names", "isolation")
"""The playbooks that apply objects, in the order of site.yml."""
UPGRADES = ("etcd", "control_plane", "nodes", "etcd_backup", "none")
"""The parts of upgrade.yml; ``none`` for layers without a version."""
CHANGED = ("apart", "together", "one_by_one")
SCOPES = ("host", "site")
ALL = "all"
"""In ``hosts``: every host has the layer."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_EVERY_KIND = ("kind", "groups", "scope", "variables")
_KEYS: Mapping[str, tuple[str, ...]] = {
    HOST: (
        *_EVERY_KIND, "hosts", "after", "needs", "phase", "also", "upgrade", "member", "changed", "waits_for",
        "units", "chosen_by", "keeps",
    ),
    CLUSTER: (*_EVERY_KIND, "after", "phase"),
    SETTINGS: _EVERY_KIND,
}  # fmt: skip
_OF_VERSIONS = ("files", "images", "only_with")
_REQUIRED = {HOST: ("hosts", "phase", "upgrade"), CLUSTER: ("phase",), SETTINGS: ()}


class Limit(t.NamedTuple):
    """Smallest and largest value that is accepted, and what it is, which is shown to the operator."""

    smallest: float
    largest: float
    reason: str


class Version(t.NamedTuple):
    """What of the mirror a variable chooses: files by name, images as references with ``{}`` for the version.

    ``only_with`` is a variable without which the version does not matter, "" where it always does.
    """

    files: tuple[str, ...]
    images: tuple[str, ...]
    only_with: str


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
        chosen_by: variable of the site that names the one layer of several that a site has.
        scope: ``site`` when its variables have one value for the whole site.
        scopes: variable -> its scope, where it is another one.
        limits: variable -> its range.
        versions: variable -> what it chooses.
        lines: what was written (keys joined with dots) -> line.
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
    chosen_by: str = ""
    scope: str = SCOPES[0]
    scopes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, Version] = dataclasses.field(default_factory=dict)
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def place(self, *path: str) -> Place:
        """Return where something of it was written, the file where it was not."""
        return Place(self.file, self.lines.get(".".join(path), 1))


def read_layer(file: Path, problems: Problems) -> Layer | None:
    """Read one file.

    Args:
        file: ``roles/NAME/meta/layer.yml``.
        problems: gets everything that is wrong with it.

    Returns:
        The layer; None when the file says too little.
    """
    return _Reader(file, problems).layer()


class _Reader:
    """Reads one file; nothing stops it but a text that is not YAML."""

    def __init__(self, file: Path, problems: Problems) -> None:
        self._file, self._problems = str(file), problems
        self._role = file.parent.parent.name
        self._lines: dict[str, int] = {}
        self._loader: t.Any = None

    def layer(self) -> Layer | None:
        """Return the layer."""
        self._loader = _LOADER(Path(self._file).read_text(encoding="utf-8"))
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
        found = {key: node for key, node in self._entries(root, "") if key in {*_KEYS[HOST]}}
        kind = self._choice(found, "kind", tuple(_KEYS))
        if "kind" not in found:
            self._add(1, "kind", "is not written", f"write kind: {', '.join(_KEYS)}, whichever it is")
        if kind not in _KEYS:
            return None
        for key, node in found.items():
            if key not in _KEYS[kind]:
                self._add(_line(node), key, f"says nothing for kind: {kind}", "take it out")
        missing = [key for key in _REQUIRED[kind] if key not in found]
        for key in missing:
            self._add(1, key, f"is not written, and kind: {kind} needs it", "write it; see docs/roles.md")
        phases = HOST_PHASES if kind == HOST else CLUSTER_PHASES
        variables = [*self._variables(found)]
        return Layer(
            name=self._role,
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
            chosen_by=str(self._value(found["chosen_by"])) if "chosen_by" in found else "",
            scope=self._choice(found, "scope", SCOPES) or SCOPES[0],
            scopes={name: scope for name, scope, _limit, _version in variables if scope},
            limits={name: limit for name, _scope, limit, _version in variables if limit},
            versions={name: version for name, _scope, _limit, version in variables if version},
            lines=self._lines,
        )

    def _add(self, line: int, path: str, message: str, remedy: str) -> None:
        self._problems.add(Place(self._file, line), path, message, remedy)

    def _value(self, node: t.Any) -> t.Any:
        return self._loader.construct_object(node, deep=True)

    def _entries(
        self, node: t.Any, path: str, known: Collection[str] | None = None
    ) -> Iterator[tuple[str, t.Any]]:
        """Yield the keys of a dictionary that mean something, with the nodes of their values."""
        known = _KEYS[HOST] if known is None else known
        if not isinstance(node, yaml.MappingNode):
            line = _line(node) if node is not None else 1
            self._add(line, path or "(file)", "must be a dictionary", "write 'key: value' lines")
            return
        for key, value in node.value:
            name, line = str(key.value), _line(key)
            full = f"{path}.{name}" if path else name
            if full in self._lines:
                first = self._lines[full]
                self._add(line, full, f"is there twice, first on line {first}", "write it once")
                continue
            self._lines[full] = line
            if known and name not in known:
                near = nearest(name, known)
                remedy = f"write {near}" if near else f"write one of {', '.join(known)}"
                self._add(line, full, "unknown key", remedy)
                continue
            yield name, value

    def _groups(self, found: Mapping[str, t.Any]) -> Iterator[tuple[str, Group]]:
        if "groups" not in found:
            return
        for name, node in self._entries(found["groups"], "groups", ()):
            path = f"groups.{name}"
            inner = dict(self._entries(node, path, ("purpose", "inside")))
            yield name, Group(self._truth(inner, "purpose", path), self._names(inner, "inside", (), path))

    def _variables(
        self, found: Mapping[str, t.Any]
    ) -> Iterator[tuple[str, str, Limit | None, Version | None]]:
        if "variables" not in found:
            return
        for name, node in self._entries(found["variables"], "variables", ()):
            path = f"variables.{name}"
            inner = dict(self._entries(node, path, ("scope", "range", "meaning", *_OF_VERSIONS)))
            limit = None
            if "range" in inner or "meaning" in inner:
                limit = self._limit(inner, path)
            if not inner:
                self._add(self._lines[path], path, "says nothing", "write a scope or a range, or take it out")
            yield name, self._choice(inner, "scope", SCOPES, path), limit, self._version(inner, path)

    def _version(self, inner: Mapping[str, t.Any], path: str) -> Version | None:
        if not any(key in inner for key in _OF_VERSIONS):
            return None
        images = self._names(inner, "images", (), path)
        for image in images:
            if image.count("{}") != 1:
                line = self._lines[f"{path}.images.{image}"]
                self._add(line, f"{path}.images", f"{image} has no place for the version", "write {} there")
        only_with = str(self._value(inner["only_with"])) if "only_with" in inner else ""
        return Version(self._names(inner, "files", (), path), images, only_with)

    def _limit(self, inner: Mapping[str, t.Any], path: str) -> Limit | None:
        values = self._value(inner["range"]) if "range" in inner else None
        meaning = self._value(inner["meaning"]) if "meaning" in inner else None
        numbers = values if isinstance(values, list) else []
        if (
            len(numbers) != 2
            or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
            or numbers[0] > numbers[1]
            or not isinstance(meaning, str)
            or not meaning
        ):
            remedy = "write range: [SMALLEST, LARGEST] and meaning: the unit, and why"
            self._add(self._lines[path], path, "has no range that can be checked", remedy)
            return None
        return Limit(numbers[0], numbers[1], meaning)

    def _choice(self, found: Mapping[str, t.Any], key: str, choices: tuple[str, ...], path: str = "") -> str:
        if key not in found:
            return ""
        value = self._value(found[key])
        if isinstance(value, str) and value in choices:
            return value
        self._unknown(_line(found[key]), f"{path}.{key}".lstrip("."), value, choices)
        return ""

    def _unknown(self, line: int, path: str, value: object, choices: tuple[str, ...]) -> None:
        near = nearest(str(value), choices)
        remedy = f"write {near}" if near else f"write one of {', '.join(choices)}"
        self._add(line, path, f"is {value}, which nothing is called", remedy)

    def _names(
        self, found: Mapping[str, t.Any], key: str, choices: tuple[str, ...] = (), path: str = ""
    ) -> tuple[str, ...]:
        if key not in found:
            return ()
        node, full = found[key], f"{path}.{key}".lstrip(".")
        value = self._value(node)
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            self._add(_line(node), full, "must be a list of names", "write [NAME, NAME]")
            return ()
        for item, name in zip(node.value, value, strict=True):
            if f"{full}.{name}" in self._lines:
                self._add(_line(item), full, f"names {name} twice", "write it once")
            self._lines[f"{full}.{name}"] = _line(item)
            if choices and name not in choices:
                self._unknown(_line(item), full, name, choices)
        return tuple(value)

    def _truth(self, found: Mapping[str, t.Any], key: str, path: str = "") -> bool:
        value = self._value(found[key]) if key in found else False
        if not isinstance(value, bool):
            self._add(_line(found[key]), f"{path}.{key}".lstrip("."), f"is {value}", "write true or false")
        return value is True


def _line(node: t.Any) -> int:
    return int(node.start_mark.line) + 1
