# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Taking away what the engine put on a host and what is wanted no longer.

A document names in ``prunes`` the layers of which nothing may stay but what it declares, and in ``keeps``
the resources that stay all the same. What is needed for that is made here, on the host, from what the engine
owns, and is compared, shown and applied like the rest.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import is_called, layer_of
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.absent import NEVER
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Kind, Spec

Owned = t.Mapping[str, t.Sequence[str]]
Documents = t.Callable[[], t.Sequence[t.Mapping[str, t.Any]]]

UNITS = "/etc/systemd/system"
STARTERS = (".timer", ".path", ".socket")
"""They start services, so they stop before these."""


def pruned(
    raw: t.Mapping[str, t.Any], owned: Owned, history: History, documents: Documents
) -> t.Optional[t.List[Spec]]:
    """Return a document's resources with the removal of what its layers have no more, None if nothing goes.

    Args:
        raw: the document, as far as it is applied.
        owned: resource id -> paths that are the engine's.
        history: of an open transaction: what it has begun is the engine's too.
        documents: returns those that were applied before, oldest first.
    """
    entries = list(raw["resources"])
    begun = {start["id"]: start["spec"] for start in history.starts}
    mine = {**{name: owned_by(spec, {}) for name, spec in begun.items()}, **owned}
    if raw.get("forget"):
        # An earlier release did not note all of it.
        known = {entry["id"]: entry for document in documents() for entry in document["resources"]}
        mine = {**{name: owned_by(entry, {}) for name, entry in known.items()}, **mine}
    wanted = {entry["id"] for entry in entries}
    layers = [layer for layer in raw["layers"] if layer in raw["prunes"]]
    keeps = raw.get("keeps", ())
    gone = [
        name
        for name, found in mine.items()
        if layer_of(name) in layers and name not in wanted and found
        if not any(is_called(name, pattern) for pattern in keeps)
    ]
    if not gone:
        return None
    former = {entry["id"]: entry for document in documents() for entry in document["resources"]}
    former.update(begun)
    staying = {path for name, found in mine.items() if name not in gone for path in found}
    for entry in entries:
        staying.update(_occupied(entry))
    staying.update(NEVER)
    stayed = list(entries)
    told: t.Dict[str, t.List[str]] = {}
    for layer in layers:
        names = [name for name in gone if layer_of(name) == layer]
        specs = _removal({name: (former.get(name), mine[name]) for name in names}, staying, entries)
        # Two layers may have had the same file; it goes once.
        staying.update(place(spec) for spec in specs)
        for spec in specs:
            told.setdefault(spec["id"].rpartition("-removed")[0], []).append(spec["id"])
        first, last = _position(layer, raw["layers"], entries)
        folders = [spec for spec in specs if spec.get("keep_used")]
        entries[last:last] = folders
        entries[first:first] = [spec for spec in specs if spec not in folders]
    entries.extend(_told_only(former, stayed, mine, told))
    return [telling(entry, documents(), told) for entry in entries]


def owned_by(spec: Spec, note: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the paths that are a resource's.

    Args:
        spec: the resource.
        note: what its kind remembers of it.
    """
    kind = _resources.load(spec["kind"])
    if kind is None or spec["kind"] == "absent":
        return []
    owns = getattr(kind, "owns", None)
    if owns is not None:
        return list(owns(spec, dict(note)))
    path = spec.get("path") or spec.get("key_path")
    return [str(path).rstrip("/")] if path else []


def place(entry: Spec) -> str:
    """Return what a resource occupies on the host; empty where only its id tells."""
    if entry["kind"] == "systemd_unit":
        name = str(entry["name"])
        return f"unit {name if '.' in name else name + '.service'}"
    path = entry.get("path") or entry.get("key_path")
    return str(path).rstrip("/") if path else ""


def _occupied(entry: Spec) -> t.List[str]:
    """Return what a resource that is wanted occupies: it stays, whoever brought it."""
    if entry["kind"] == "absent":
        return []
    return [place(entry), *owned_by(entry, {"members": dict.fromkeys(entry.get("members") or ())})]


def specs_for(kind: t.Optional[Kind], entry: Spec, found: t.Sequence[str]) -> t.List[Spec]:
    """Return what removes a resource: as its kind says, or its paths.

    Args:
        kind: its kind, None if that is not known any more.
        entry: the resource.
        found: its paths that are to go.
    """
    removal = getattr(kind, "removal", None)
    if removal is not None:
        return list(removal(entry, found))
    # What it was is not known any more where there is no kind.
    return [{"kind": "absent", "path": path, "keep_used": kind is None} for path in found]


def telling(
    entry: Spec, documents: t.Sequence[t.Mapping[str, t.Any]], removed: t.Mapping[str, t.List[str]]
) -> Spec:
    """Return a unit that also restarts for what is removed from under it, anything else as it is.

    Args:
        entry: a resource that is wanted.
        documents: those in which it may have named what is removed.
        removed: id of what is removed -> ids of the resources that do it.
    """
    # One that is to stop does so before its files go, not after.
    if entry["kind"] != "systemd_unit" or entry.get("state") == "stopped" or not removed:
        return entry
    told = dict(entry)
    for parameter in ("restart_on", "reload_on"):
        on: t.Dict[str, None] = {}
        for document in documents:
            for other in document["resources"]:
                if other["id"] == entry["id"]:
                    on.update(
                        (new, None) for old in other.get(parameter) or () for new in removed.get(old, ())
                    )
        if on:
            told[parameter] = [*(entry.get(parameter) or ()), *on]
    return told


def _told_only(
    former: t.Mapping[str, Spec],
    stayed: t.Sequence[Spec],
    mine: Owned,
    told: t.Mapping[str, t.Sequence[str]],
) -> t.List[Spec]:
    """Return units of others that are declared no longer and read a file that goes: they are told once more.

    Args:
        former: what was declared.
        stayed: what still is.
        mine: what is the engine's; a unit whose file is stops instead.
        told: id of what is removed -> ids of the resources that do it.
    """
    places = {place(entry) for entry in stayed}
    files = {path for found in mine.values() for path in found}
    specs = []
    for name, entry in former.items():
        at = place(entry)
        if entry["kind"] != "systemd_unit" or at in places or f"{UNITS}/{at[5:]}" in files:
            continue
        on = {
            parameter: [new for old in entry.get(parameter) or () for new in told.get(old, ())]
            for parameter in ("restart_on", "reload_on")
        }
        if any(on.values()):
            enabled = entry.get("enabled", True)
            unit = {"kind": "systemd_unit", "name": at[5:], "enabled": enabled, "state": "unchanged"}
            specs.append({**unit, "id": f"{name}-told", **{key: new for key, new in on.items() if new}})
    return specs


def _removal(
    gone: t.Mapping[str, t.Tuple[t.Optional[Spec], t.Sequence[str]]],
    staying: t.Collection[str],
    entries: t.Sequence[Spec],
) -> t.List[Spec]:
    """Return the removal of some resources: units stop first, then paths go, from the inside out."""
    stops: t.List[Spec] = []
    paths: t.List[Spec] = []
    for name, (entry, mine) in gone.items():
        found = [path for path in mine if path not in staying and not _covered(path, entries)]
        kind = _resources.load(entry["kind"]) if entry else None
        specs = [
            spec
            for spec in specs_for(kind, entry or {"id": name}, found)
            if spec["kind"] == "absent" and spec["path"] in found
        ]
        for unit in (os.path.basename(path) for path in found if _is_unit(path)):
            if f"unit {unit}" not in staying and not _stopped(unit, entries):
                specs.append({"kind": "systemd_unit", "name": unit, "enabled": False, "state": "stopped"})
        for number, spec in enumerate(specs):
            named = {"id": f"{name}-removed{f'-{number}' if number else ''}", **spec}
            (stops if spec["kind"] == "systemd_unit" else paths).append(named)
    stops.sort(key=lambda spec: not spec["name"].endswith(STARTERS))
    paths.sort(key=lambda spec: -spec["path"].count("/"))
    return [*stops, *paths]


def _is_unit(path: str) -> bool:
    folder, name = os.path.split(path)
    return folder == UNITS and "@." not in name and name.endswith((".service", ".mount", ".slice", *STARTERS))


def _stopped(unit: str, entries: t.Sequence[Spec]) -> bool:
    return any(place(entry) == f"unit {unit}" for entry in entries)


def _covered(path: str, entries: t.Sequence[Spec]) -> bool:
    """Tell whether the document itself says what becomes of a path."""
    return any(
        path == mine or (entry.get("recursive") and path.startswith(mine + "/"))
        for entry in entries
        for mine in [place(entry)]
        if mine
    )


def _position(layer: str, layers: t.Sequence[str], entries: t.Sequence[Spec]) -> t.Tuple[int, int]:
    """Return where a layer's removal goes, and where that of folders, which are to be empty by then: last.

    Units and files go before what the layer declares absent, which a unit may still use.
    """
    own = [number for number, entry in enumerate(entries) if layer_of(entry["id"]) == layer]
    if own:
        end = own[-1] + 1
        return next((number for number in own if entries[number]["kind"] == "absent"), end), end
    later = layers[layers.index(layer) + 1 :]
    at = next((n for n, entry in enumerate(entries) if layer_of(entry["id"]) in later), len(entries))
    return at, at
