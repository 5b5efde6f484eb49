# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All layers, as their roles describe them: the order, who has which, and which phase converges what.

Nobody else lists layers. The files are read once a process; in a run of ansible-playbook the main process
reads them, before it starts those of its tasks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layer_file import (
    ALL,
    CHANGED,
    CLUSTER,
    HOST,
    HOST_PHASES,
    UPGRADES,
    Group,
    Layer,
    read_layer,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    Place,
    Problem,
    Problems,
    SiteError,
    nearest,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.variable_file import Limit, Version

FILE = "layer.yml"
MEMBERSHIP = "membership"
"""The phase of what a member loses when it is rebuilt: what makes it one, and what its hosts do in turn."""
UPGRADE = "upgrade_"
PREFIXES: tuple[str, ...] = ("rack_", "user_", "__ironspan_")
"""Beginnings of groups that are no feature: racks, a site's own ones, and those of a run."""
_APART, _, _ONE_BY_ONE = CHANGED
_POD_NETWORK = "site_cni"
_OF_A_ROLE = ("tasks/main.yml", "desired.yml.j2", "objects.yml.j2", "meta/argument_specs.yml")


@dataclasses.dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a collection.

    Args:
        layers: name -> layer, in the order in which a host gets them; those of the cluster are among them.
        order: names of those that hosts have.
        cluster: names of those that have objects only.
        members: those that make a host a member of something, which takes credentials.
        pending: those with a phase of their own, for hosts that have something to do in them.
        dependent: those whose hosts depend on each other.
        one_by_one: those whose hosts are changed one after the other.
        waits_for: layer -> what a host without any data of it waits for.
        units: service -> the layer that it belongs to.
        groups: group -> what it is, for all groups that a site may have.
        limits: variable -> its range.
        versions: variable -> what of the mirror it chooses.
        pod_networks: those of which a site has the one that ``site_cni`` names; both while it is being moved.
    """

    layers: Mapping[str, Layer]
    order: tuple[str, ...]
    cluster: tuple[str, ...]
    members: tuple[str, ...]
    pending: tuple[str, ...]
    dependent: frozenset[str]
    one_by_one: tuple[str, ...]
    waits_for: Mapping[str, tuple[str, ...]]
    units: Mapping[str, str]
    groups: Mapping[str, Group]
    limits: Mapping[str, Limit]
    versions: Mapping[str, Version]
    pod_networks: tuple[str, ...]
    _site_wide: dict[str, bool] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def phases(self) -> tuple[str, ...]:
        """Return everything that playbooks can ask for."""
        return (*HOST_PHASES, *(UPGRADE + part for part in UPGRADES[:-1]), MEMBERSHIP)

    def in_phase(self, phase: str) -> list[str]:
        """Return the layers that a phase converges, in order.

        Args:
            phase: one of HOST_PHASES, ``upgrade_PART`` for what a part of upgrade.yml gives another version,
                or ``membership``.

        Raises:
            SiteError: there is no such phase.
        """
        if phase == MEMBERSHIP:
            return [name for name in self.order if name in self.members or name in self.dependent]
        if phase not in self.phases():
            near = nearest(phase, self.phases())
            remedy = f"write {near}" if near else f"write one of {', '.join(self.phases())}"
            raise SiteError(
                [Problem("(playbook)", 0, "phase", f"is {phase}, which nothing is called", remedy)]
            )
        if phase.startswith(UPGRADE):
            return [name for name in self.order if UPGRADE + self.layers[name].upgrade == phase]
        return [
            name for name in self.order if phase == self.layers[name].phase or phase in self.layers[name].also
        ]

    def is_site_wide(self, variable: str) -> bool:
        """Tell whether a variable has one value for the whole site."""
        if variable not in self._site_wide:
            owners = [name for name in self.layers if variable.startswith(f"{name}_")]
            owner = self.layers[max(owners, key=len)] if owners else None
            found = owner is not None and owner.scopes.get(variable, owner.scope) == "site"
            self._site_wide[variable] = found
        return self._site_wide[variable]

    def insist_on(self, variables: Collection[str]) -> None:
        """Refuse versions that go with variables which no role declares.

        Args:
            variables: names of those that roles declare.

        Raises:
            SiteError: with every such place.
        """
        problems = Problems()
        for layer in self.layers.values():
            for name, version in layer.versions.items():
                other = version.only_with
                if other and other not in variables:
                    near = nearest(other, variables)
                    remedy = f"write {near}" if near else "declare it, or take it out"
                    message = f"goes with {other}, and no role declares this variable"
                    problems.add(layer.variables[name], f"{name}.only_with", message, remedy)
        _refuse(problems)


@functools.lru_cache(maxsize=1)
def all_layers() -> Layers:
    """Return the layers of this collection.

    Raises:
        SiteError: with everything that is wrong with their files.
    """
    return read_layers(ROLES_FOLDER)


def read_early() -> None:
    """Read the layers for all processes started from now on; what is wrong is said when they are used."""
    with contextlib.suppress(SiteError):
        all_layers()


@functools.lru_cache(maxsize=256)
def layers_of(groups: tuple[str, ...], cni: str = "flannel", moving: bool = False) -> tuple[str, ...]:
    """Return the layers of a host that is in these groups.

    Args:
        groups: the host's groups.
        cni: the site's pod network.
        moving: the cluster is being moved from one pod network to the other, and hosts have both.
    """
    there = all_layers()
    return tuple(
        name
        for name in there.order
        if (name not in there.pod_networks or moving or name == cni)
        and any(group == ALL or group in groups for group in there.layers[name].hosts)
    )


def read_layers(roles_folder: Path) -> Layers:
    """Read the layers of a folder of roles.

    Args:
        roles_folder: folder that holds one folder a role.

    Raises:
        SiteError: with everything that is wrong with the files, each with its line.
    """
    problems = Problems()
    found: dict[str, Layer] = {}
    for role in sorted(path for path in roles_folder.iterdir() if path.is_dir()):
        file = role / "meta" / FILE
        if file.is_file():
            layer = read_layer(file, problems)
            if layer is not None:
                found[role.name] = layer
        elif any((role / part).is_file() for part in _OF_A_ROLE):
            there = [path.name for path in (role / "meta").glob("*.yml") if path.name != "argument_specs.yml"]
            near = nearest(FILE, there)
            remedy = f"rename meta/{near}" if near else "write it: docs/roles.md, A layer describes itself"
            message = "the role has no such file, so nobody knows which hosts have its layer"
            problems.add(Place(str(file), 0), f"roles.{role.name}", message, remedy)
    _refuse(problems)
    groups = _groups(found, problems)
    _check_names(found, groups, problems)
    _refuse(problems)
    ordered = _ordered(found, problems)
    _refuse(problems)
    _check_needs(found, groups, problems)
    _refuse(problems)
    return _layers(ordered, groups)


def _refuse(problems: Problems) -> None:
    if len(problems):
        raise SiteError(problems)


def _layers(layers: Mapping[str, Layer], groups: Mapping[str, Group]) -> Layers:
    of_hosts = [layer for layer in layers.values() if layer.kind == HOST]
    own = [layer for layer in of_hosts if layer.phase != HOST_PHASES[0]]
    # Members first, each in the order of the phases.
    own.sort(key=lambda layer: (not layer.member, HOST_PHASES.index(layer.phase)))
    return Layers(
        layers=layers,
        order=_names(of_hosts),
        cluster=_names(layer for layer in layers.values() if layer.kind == CLUSTER),
        members=_names(layer for layer in own if layer.member),
        pending=_names(own),
        dependent=frozenset(_names(layer for layer in of_hosts if layer.changed != _APART)),
        one_by_one=_names(layer for layer in of_hosts if layer.changed == _ONE_BY_ONE),
        waits_for={layer.name: layer.waits_for for layer in of_hosts if layer.waits_for},
        units={unit: layer.name for layer in of_hosts for unit in layer.units},
        groups=groups,
        limits={name: limit for layer in layers.values() for name, limit in layer.limits.items()},
        versions={name: version for layer in layers.values() for name, version in layer.versions.items()},
        pod_networks=_names(layer for layer in of_hosts if layer.chosen_by == _POD_NETWORK),
    )


def _names(layers: Iterable[Layer]) -> tuple[str, ...]:
    return tuple(layer.name for layer in layers)


def _groups(layers: Mapping[str, Layer], problems: Problems) -> dict[str, Group]:
    """Return all groups, each declared by one layer."""
    groups: dict[str, Group] = {}
    first: dict[str, str] = {}
    for layer in layers.values():
        for name, group in layer.groups.items():
            if name in groups:
                message = f"roles/{first[name]}/meta/{FILE} declares it too"
                problems.add(
                    layer.place("groups", name), f"groups.{name}", message, "declare it in one of them"
                )
            groups[name], first[name] = group, layer.name
    return groups


def _check_names(layers: Mapping[str, Layer], groups: Mapping[str, Group], problems: Problems) -> None:
    """Refuse names of layers and groups that there are not, and variables that another role has."""

    def check(layer: Layer, path: str, names: Sequence[str], known_: Collection[str], what: str) -> None:
        for name in names:
            if name not in known_:
                near = nearest(name, known_)
                remedy = f"write {near}" if near else f"write one of {', '.join(known_)}"
                problems.add(
                    layer.place(path, name), path, f"names {name}, and there is no such {what}", remedy
                )

    for layer in layers.values():
        of_kind = [other.name for other in layers.values() if other.kind == layer.kind]
        check(layer, "after", layer.after, of_kind, "layer")
        check(layer, "needs", layer.needs, of_kind, "layer")
        check(layer, "back_with", layer.back_with, of_kind, "layer")
        check(layer, "hosts", layer.hosts, (*groups, ALL), "group")
        for name, group in layer.groups.items():
            check(layer, f"groups.{name}.inside", group.inside, groups, "group")
        if layer.chosen_by not in ("", _POD_NETWORK):
            message = f"is {layer.chosen_by}, which chooses no layer"
            problems.add(layer.place("chosen_by"), "chosen_by", message, f"write {_POD_NETWORK}")
        for name, place in layer.variables.items():
            if not name.startswith(f"{layer.name}_"):
                remedy = f"let its name begin with {layer.name}_"
                problems.add(place, name, f"is no name for a variable of the role {layer.name}", remedy)


def _ordered(layers: Mapping[str, Layer], problems: Problems) -> dict[str, Layer]:
    """Return the layers, each after those that it names; by name where that leaves a choice."""
    before = {name: {*layer.after, *layer.needs} for name, layer in layers.items()}
    ordered: dict[str, Layer] = {}
    ready = [name for name, names in before.items() if not names]
    heapq.heapify(ready)
    while ready:
        name = heapq.heappop(ready)
        ordered[name] = layers[name]
        for other, names in before.items():
            if name in names and names <= ordered.keys():
                heapq.heappush(ready, other)
    stuck = {name for name in layers if name not in ordered}
    if stuck:
        circle = _circle(min(stuck), {name: sorted(before[name] & stuck) for name in stuck})
        links = [(layers[name], other) for name, other in itertools.pairwise(circle)]
        # What somebody merely wanted in an order goes before what a layer cannot do without.
        layer, other = next((link for link in links if link[1] in link[0].after), links[0])
        key = "after" if other in layer.after else "needs"
        message = f"the layers come after each other in a circle: {', '.join(circle)}"
        problems.add(layer.place(key, other), key, message, f"take {other} out here, or break it elsewhere")
    return ordered


def _circle(name: str, before: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a circle, its first layer also at the end. Every name has somebody before it."""
    seen = [name]
    while (name := before[name][0]) not in seen:
        seen.append(name)
    return [*seen[seen.index(name) :], name]


def _check_needs(layers: Mapping[str, Layer], groups: Mapping[str, Group], problems: Problems) -> None:
    """Refuse a layer whose hosts may be without a layer that it needs."""

    def sure(group: str, wanted: Collection[str], seen: tuple[str, ...] = ()) -> bool:
        if ALL in wanted or group in wanted:
            return True
        inside = groups[group].inside if group in groups and group not in seen else ()
        return bool(inside) and all(sure(outer, wanted, (*seen, group)) for outer in inside)

    for layer in layers.values():
        for needed in layer.needs:
            wanted = layers[needed].hosts
            for group in layer.hosts:
                if not sure(group, wanted):
                    message = f"hosts of the group {group} have {layer.name} and may be without {needed}"
                    remedy = f"declare the group with inside: [{', '.join(wanted)}], or take {needed} out"
                    problems.add(layer.place("needs", needed), "needs", message, remedy)
