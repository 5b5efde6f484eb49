# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Composing the document that takes a host back to one that was applied before.

It is that document, and in front of it the removal of what newer documents added. It is applied like any
other, as one transaction. What the engine cannot take back is named, not attempted.
"""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import layer_of
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.removal import (
    UNITS,
    Owned,
    place,
    specs_for,
    telling,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.revisions import Revision
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Spec


def choose(
    revisions: t.Sequence[Revision], to: str, unlike: t.Mapping[str, t.Any]
) -> t.Tuple[Revision, Revision]:
    """Return where the host is and where it goes back to.

    Args:
        revisions: oldest first.
        to: beginning of a digest; empty means the document before the present one, or, after a rollback, the
            one that was gone back to: asked again, a rollback is finished and not taken further.
        unlike: ``resource``, ``field`` and ``value``: the newest document that has this resource with another
            value there, whatever came in between; nothing for any document.

    Raises:
        EngineError: there is no such document.
    """
    if not revisions:
        raise EngineError([Problem("", "no document is kept on this host", "Only what was applied is kept.")])
    newest = revisions[-1]
    if unlike:
        for revision in reversed(revisions):
            if _is_unlike(revision["document"], unlike):
                return newest, revision
        text = f"no document with another {unlike['field']} of {unlike['resource']} is kept on this host"
        raise EngineError([Problem("", text, "Write the one that it shall have into the inventory.")])
    if to:
        for revision in reversed(revisions):
            if revision["digest"].startswith(to):
                return newest, revision
        known = ", ".join(revision["digest"][:12] for revision in reversed(revisions))
        text = f"no document {to} is kept on this host"
        raise EngineError([Problem("", text, f"Name one of: {known}.")])
    if "undoes" in newest:
        return newest, newest
    if len(revisions) < 2:
        text = "no earlier document is kept on this host"
        remedy = "The first one is all there is; reset.yml leads back to a bare host."
        raise EngineError([Problem("", text, remedy)])
    return newest, revisions[-2]


def _is_unlike(document: t.Mapping[str, t.Any], unlike: t.Mapping[str, t.Any]) -> bool:
    found = [entry for entry in document["resources"] if entry["id"] == unlike["resource"]]
    return any(entry.get(unlike["field"]) != unlike["value"] for entry in found)


def compose(
    revisions: t.Sequence[Revision], to: str, owned: Owned, unlike: t.Mapping[str, t.Any]
) -> t.Tuple[Spec, t.Dict[str, t.Any]]:
    """Return the document to apply, and what there is to say about it.

    Only layers that were applied here take part: a document of the whole host may have been applied in part.

    Args:
        revisions: oldest first.
        to: see ``choose``.
        owned: resource id -> paths that the engine is responsible for.
        unlike: see ``choose``.
    """
    newest, target = choose(revisions, to, unlike)
    applied = newest["layers"]
    document = target["document"]
    wanted = [entry for entry in document["resources"] if layer_of(entry["id"]) in applied]
    later = [revision for revision in revisions if revision["number"] > target["number"]]
    documents = [revision["document"] for revision in later]
    added = _added(wanted, later, applied)
    taken = {path for revision in later for path in revision["taken"]}
    removal = _Removal(owned, taken, {place(entry) for entry in wanted})
    for entry in reversed(added):
        removal.add(entry)
    removal.restart_what_stays(added)
    layers = [layer for layer in document["layers"] if layer in applied]
    gone = sorted({layer_of(entry["id"]) for entry in added} - set(document["layers"]))
    undoes = newest.get("undoes") or newest["release"]
    back = {"origin": newest["number"], "target": target["number"], "undoes": undoes}
    composed = {
        **{key: document[key] for key in ("schema", "site", "host") if key in document},
        "layers": layers,
        "resources": [*removal.specs, *(telling(entry, documents, removal.names) for entry in wanted)],
        "rollback": back,
    }
    return composed, {
        "to": {key: target[key] for key in ("digest", "number", "time")},
        "from": {key: newest[key] for key in ("digest", "number", "time")},
        "undoes": undoes,
        "left": removal.left,
        "removed_layers": gone,
        "replaced_artifacts": _replaced(wanted, newest["document"]["resources"]),
    }


def _added(wanted: t.Sequence[Spec], later: t.Sequence[Revision], applied: t.Collection[str]) -> t.List[Spec]:
    """Return what later documents have and the wanted one has not; of several versions the latest."""
    places = {(entry["id"], place(entry)) for entry in wanted}
    names = {entry["id"] for entry in wanted}
    added: t.Dict[t.Tuple[str, str], Spec] = {}
    for revision in later:
        for entry in revision["document"]["resources"]:
            key = (entry["id"], place(entry))
            # What occupies no place is known by its id only.
            known = key in places if key[1] else entry["id"] in names
            if not known and layer_of(entry["id"]) in applied:
                added.pop(key, None)
                added[key] = entry
    return list(added.values())


class _Removal:
    """The resources that take away what was added, in the order to do it."""

    def __init__(self, owned: Owned, taken: t.Collection[str], places: t.Collection[str]) -> None:
        self._owned = owned
        self._taken = taken
        self._places = places
        self.specs: t.List[Spec] = []
        self.left: t.List[t.Dict[str, str]] = []
        self.names: t.Dict[str, t.List[str]] = {}
        """Id of what was added -> ids of the resources that remove it."""

    def add(self, entry: Spec) -> None:
        """Remove one resource, as far as that can be done."""
        name, at = entry["id"], place(entry)
        kind = _resources.load(entry["kind"])
        stays, leaves = getattr(kind, "stays", ""), getattr(kind, "leaves", "")
        if entry["kind"] == "systemd_unit":
            file = f"{UNITS}/{at[5:]}"
            # Where somebody else's unit file stays, its unit is not this engine's to stop.
            mine = any(file in paths for paths in self._owned.values()) and file not in self._places
            if mine and at not in self._places:
                self._put(name, specs_for(kind, entry, ()))
        elif stays or not (at or hasattr(kind, "removal")):
            self._leave(name, stays or f"the kind {entry['kind']} is not taken back")
        elif not at or entry.get("unpack", "none") != "none" or at not in self._places:
            found = [path for path in self._owned.get(name, ()) if path not in self._places]
            for path in found:
                if path in self._taken:
                    self._leave(name, f"{path} was there before; what it was is not kept")
            self._put(name, specs_for(kind, entry, [path for path in found if path not in self._taken]))
            if leaves:
                self._leave(name, leaves)

    def restart_what_stays(self, added: t.Sequence[Spec]) -> None:
        """Restart units that were told to by what is removed, and that are not removed themselves."""
        for entry in added:
            at = place(entry)
            if entry["kind"] == "systemd_unit" and entry["id"] not in self.names:
                on = [new for old in _triggers(entry) for new in self.names.get(old, ())]
                if on and at not in self._places:
                    unit = {"kind": "systemd_unit", "name": at[5:], "enabled": entry.get("enabled", True)}
                    self._put(entry["id"], [{**unit, "state": "unchanged", "restart_on": on}])

    def _put(self, name: str, specs: t.Sequence[Spec]) -> None:
        for spec in specs:
            count = len(self.names.get(name, ()))
            # Another id than that of the resource, which may be wanted at another path.
            new = spec.get("id") or f"{name}-removed{f'-{count}' if count else ''}"
            self.names.setdefault(name, []).append(new)
            self.specs.append({**spec, "id": new})

    def _leave(self, name: str, why: str) -> None:
        self.left.append({"resource": name, "why": why})


def _triggers(entry: Spec) -> t.List[str]:
    return [*(entry.get("restart_on") or ()), *(entry.get("reload_on") or ())]


def _replaced(wanted: t.Sequence[Spec], present: t.Sequence[Spec]) -> t.List[t.Dict[str, str]]:
    """Return the artefacts that would be of another version, for who knows what versions mean."""
    now = {entry["id"]: entry["url_path"] for entry in present if entry["kind"] == "artifact"}
    return [
        {"resource": entry["id"], "from": now[entry["id"]], "to": entry["url_path"]}
        for entry in wanted
        if entry["kind"] == "artifact" and now.get(entry["id"], entry["url_path"]) != entry["url_path"]
    ]
