# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure says that a deployment would change, in one form for stacks and for plain deployments."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import noise

Kind = t.Literal["create", "delete", "detach", "modify", "none", "unsupported"]
_KINDS: t.Final[Mapping[str, Kind]] = {
    "create": "create",
    "delete": "delete",
    "detach": "detach",
    "modify": "modify",
    "nochange": "none",
    # Exists, and is not in the template: an Incremental deployment leaves it alone.
    "ignore": "none",
    # Would be deployed, and what that changes is not known.
    "deploy": "unsupported",
    "unsupported": "unsupported",
}
_SHOWN = 200
"""Characters of a value that are shown."""


class Property(t.NamedTuple):
    """One property that would change.

    Args:
        path: with dots, and positions of lists in brackets.
        kind: create, delete or modify.
        before: its value, None when it is not there.
        after: the same.
    """

    path: str
    kind: str
    before: t.Any = None
    after: t.Any = None

    def text(self) -> str:
        """Return it in one line."""
        return f"{self.path}: {_shown(self.before)} -> {_shown(self.after)}"


class Change(t.NamedTuple):
    """What would become of one resource.

    Args:
        id: its resource id, as Azure writes it.
        kind: of the change.
        properties: that change, for ``modify``.
        reason: why nothing can be said, for ``unsupported``.
        potential: whether Azure is not sure of it.
    """

    id: str
    kind: Kind
    properties: tuple[Property, ...] = ()
    reason: str = ""
    potential: bool = False

    @property
    def type(self) -> str:
        """Its type, such as Microsoft.Compute/virtualMachines."""
        return type_of(self.id)

    @property
    def name(self) -> str:
        """Its name and those of what it lies in, as people call it."""
        return name_of(self.id)

    def as_dict(self) -> dict[str, t.Any]:
        """Return it as a plan has it."""
        made: dict[str, t.Any] = {"id": self.id, "change": self.kind}
        if self.properties:
            made["properties"] = {
                one.path: {"before": _short(one.before), "after": _short(one.after)}
                for one in self.properties
            }
        if self.reason:
            made["reason"] = self.reason
        if self.potential:
            made["potential"] = True
        return made


class Foreseen(t.NamedTuple):
    """What a deployment would do.

    Args:
        changes: in the order of their ids; what stays as it is is not among them.
        hidden: name of a rule (``noise.Rule``) to how many differences it has hidden.
        same: how many resources stay as they are.
        warnings: what Azure says beside.
    """

    changes: tuple[Change, ...] = ()
    hidden: Mapping[str, int] = {}
    same: int = 0
    warnings: tuple[str, ...] = ()


def of_stack(result: Mapping[str, t.Any]) -> Foreseen:
    """Return what the what-if result of a deployment stack says.

    Args:
        result: a ``deploymentStacksWhatIfResults``, as JSON.
    """
    properties = result.get("properties") or {}
    changes = []
    for one in (properties.get("changes") or {}).get("resourceChanges") or ():
        inner = one.get("resourceConfigurationChanges") or {}
        changes.append(
            Change(
                str(one.get("id") or ""),
                _kind(one),
                tuple(_flat(inner.get("delta") or (), "changeType")),
                str(one.get("unsupportedReason") or ""),
                str(one.get("changeCertainty") or "").lower() == "potential",
            )
        )
    return _foreseen(changes, properties.get("diagnostics") or ())


def of_deployment(result: Mapping[str, t.Any]) -> Foreseen:
    """Return what the what-if result of a plain deployment says.

    Args:
        result: a ``WhatIfOperationResult``, as JSON.
    """
    properties = result.get("properties") or {}
    changes = [
        Change(
            str(one.get("resourceId") or ""),
            _kind(one),
            tuple(_flat(one.get("delta") or (), "propertyChangeType")),
            str(one.get("unsupportedReason") or ""),
            potential,
        )
        for key, potential in (("changes", False), ("potentialChanges", True))
        for one in properties.get(key) or ()
    ]
    return _foreseen(changes, properties.get("diagnostics") or ())


def _kind(change: Mapping[str, t.Any]) -> Kind:
    """Return the kind of a change; one that nobody knows is not held for none."""
    return _KINDS.get(str(change.get("changeType") or "").lower(), "unsupported")


def _flat(delta: Iterable[Mapping[str, t.Any]], key: str, above: str = "") -> Iterator[Property]:
    """Yield the properties at the ends of a tree of changes."""
    for one in delta:
        kind = str(one.get(key) or "modify").lower()
        path = _joined(above, str(one.get("path") or ""))
        children = one.get("children") or ()
        if kind == "noeffect":
            continue
        if children:
            yield from _flat(children, key, path)
        else:
            yield Property(path, "modify" if kind == "array" else kind, one.get("before"), one.get("after"))


def _joined(above: str, path: str) -> str:
    if path.isdigit():
        return f"{above}[{path}]"
    return f"{above}.{path}" if above and path and not path.startswith("[") else f"{above}{path}"


def _foreseen(changes: Iterable[Change], diagnostics: Iterable[Mapping[str, t.Any]]) -> Foreseen:
    kept: list[Change] = []
    hidden: dict[str, int] = {}
    same = 0
    for change in changes:
        shown = _without_noise(change, hidden)
        if shown.kind == "none" or (shown.kind == "modify" and change.properties and not shown.properties):
            same += 1
        else:
            kept.append(shown)
    warnings = tuple(
        f"{one.get('code') or ''}: {' '.join(str(one.get('message') or '').split())}"
        for one in diagnostics
        if str(one.get("level") or "").lower() in ("warning", "error")
    )
    kept.sort(key=lambda change: (change.id.lower(), change.kind))
    return Foreseen(tuple(kept), dict(sorted(hidden.items())), same, warnings)


def _without_noise(change: Change, hidden: dict[str, int]) -> Change:
    if change.kind != "modify":
        return change
    left = []
    for one in change.properties:
        rule = noise.rule_for(change.type, one.path, one.kind, one.before, one.after)
        if rule:
            hidden[rule] = hidden.get(rule, 0) + 1
        else:
            left.append(one)
    return change._replace(properties=tuple(left))


def type_of(resource_id: str) -> str:
    """Return the type of a resource by its id; a resource group's id has no provider."""
    _, found, rest = resource_id.rpartition("/providers/")
    if not found:
        return "Microsoft.Resources/resourceGroups"
    namespace, *parts = rest.split("/")
    return "/".join([namespace, *parts[::2]])


def name_of(resource_id: str) -> str:
    """Return what people call a resource: its names, and the resource group that it lies in."""
    _, found, rest = resource_id.rpartition("/providers/")
    parts = resource_id.split("/")
    lower = [part.lower() for part in parts]
    group = parts[lower.index("resourcegroups") + 1] if "resourcegroups" in lower[:-1] else ""
    if not found:
        return group
    name = "/".join(rest.split("/")[2::2])
    return f"{name} in {group}" if group else name


def _short(value: t.Any) -> t.Any:
    """Return a value as the plan keeps it: whole, unless it is long."""
    text = json.dumps(value, sort_keys=True, default=str)
    return value if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _shown(value: t.Any) -> str:
    return "nothing" if value is None else json.dumps(_short(value), sort_keys=True, default=str)
