# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was applied to this host: the last few documents, and reports of the last transactions.

A revision is a whole document of the host, however many layers at a time it was applied in: transactions that
work towards the same document belong to the same revision, also across runs. Nothing here is a secret:
documents refer to secrets by name, and reports say what was changed, not to what.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import (
    remove_if_there,
    sync_folder,
    write_atomically,
)

Revision = t.Dict[str, t.Any]

REVISIONS_KEPT = 5
"""The one that is applied and four to go back to: some 50 kB each."""
REPORTS_KEPT = 20


class Revisions:
    """The folder ``history`` below the engine's own.

    Args:
        folder: the engine's folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, "history")
        self._reports = os.path.join(self._folder, "reports.json")

    def all(self) -> t.List[Revision]:
        """Return the revisions, oldest first; one that cannot be read is left out."""
        found: t.List[Revision] = []
        for number in self._numbers():
            revision = _read(self._path(number))
            if isinstance(revision, dict) and isinstance(revision.get("document"), dict):
                found.append(revision)
        return found

    def newest(self) -> Revision:
        """Return the revision that was applied last, an empty one if there is none."""
        return (self.all() or [{}])[-1]

    def reports(self) -> t.List[t.Dict[str, t.Any]]:
        """Return what the last transactions did, oldest first."""
        found = _read(self._reports)
        return found if isinstance(found, list) else []

    def fold(self, history: History) -> None:
        """Take over what a committed transaction applied. Doing it twice changes nothing more.

        Args:
            history: of a journal that has a ``commit`` record.
        """
        commit = history.commit or {}
        applied = commit.get("revision")
        if applied is None:
            return
        if "document" not in applied:
            # The host is bare again: there is nothing to go back to.
            for number in self._numbers():
                remove_if_there(self._path(number))
            return
        newest = self.newest()
        begun = history.begun
        if newest.get("digest") == applied["digest"]:
            revision = newest
        else:
            revision = {
                "number": newest.get("number", 0) + 1,
                "time": begun["time"],
                "layers": newest.get("layers", []),
                "taken": [],
                "plans": [],
                **applied,
            }
        layers = {*revision["layers"], *commit["layers"]}
        revision = {
            **revision,
            "layers": sorted(layers),
            "taken": sorted({*revision["taken"], *commit["taken"]}),
            "plans": _with(revision["plans"], history.plan),
        }
        self._write(self._path(revision["number"]), revision)
        for number in self._numbers()[:-REVISIONS_KEPT]:
            remove_if_there(self._path(number))

    def add_report(self, history: History, outcome: str, reason: str = "") -> None:
        """Add what became of a transaction; the same transaction's earlier report is replaced."""
        begun = history.begun
        report = {
            "serial": begun.get("serial"),
            "time": begun.get("time"),
            "ended": int(time.time()),
            "digest": begun.get("digest"),
            "plan": history.plan,
            "outcome": outcome,
            "reason": reason,
            "changes": [
                {"resource": start["id"], "kind": start["kind"], "action": start["change"]["action"]}
                for start in history.starts
            ],
        }
        others = [
            other
            for other in self.reports()
            if (other.get("serial"), other.get("time")) != (report["serial"], report["time"])
        ]
        self._write(self._reports, [*others, report][-REPORTS_KEPT:])

    def _numbers(self) -> t.List[int]:
        try:
            names = os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number}.json")

    def _write(self, path: str, value: t.Any) -> None:
        if not os.path.isdir(self._folder):
            paths.make_folder(self._folder, 0o700)
            sync_folder(os.path.dirname(self._folder))
        write_atomically(path, json.dumps(value, separators=(",", ":")).encode("ascii"), 0o600)


def documents(revisions: Revisions) -> t.List[t.Dict[str, t.Any]]:
    """Return the documents that were applied, oldest first."""
    return [revision["document"] for revision in revisions.all()]


def applied_by(
    raw: t.Mapping[str, t.Any], digest: str, release: t.Mapping[str, t.Any], revisions: Revisions
) -> t.Optional[Revision]:
    """Return what the ``commit`` record says of the document, for ``Revisions.fold``.

    Args:
        raw: the host's whole document, with the layers that this execution leaves out.
        digest: of that document.
        release: what the controller calls the state of the whole site (digest and time).
        revisions: of this host.
    """
    if raw.get("forget") is True:
        return {}
    back = raw.get("rollback")
    if back is None:
        return {"digest": digest, "document": dict(raw), "release": dict(release)}
    target = insist_on_origin(back, revisions)
    return {key: target[key] for key in ("digest", "document", "release")} | {
        "undoes": back["undoes"],
        "origin": back["origin"],
    }


def insist_on_origin(back: t.Mapping[str, t.Any], revisions: Revisions) -> Revision:
    """Return the revision that a rollback leads to, if the host is still where the rollback starts.

    Raises:
        EngineError: something else was applied since the rollback was composed.
    """
    found = revisions.all()
    newest = found[-1] if found else {}
    here = newest.get("number") == back["origin"] or newest.get("origin") == back["origin"]
    for revision in found if here else ():
        if revision["number"] == back["target"]:
            return revision
    text = "another document was applied to this host since the rollback was compared"
    raise EngineError([Problem("", text, "Compare again: run the rollback (or its plan) again.")])


def taken_over(history: History, owned: t.Mapping[str, t.Sequence[str]]) -> t.List[str]:
    """Return the paths at which something of somebody else's was: it is not kept beyond the transaction.

    Args:
        history: of the transaction.
        owned: resource id -> paths that were the engine's before it.
    """
    mine = {path for paths in owned.values() for path in paths}
    return sorted(
        {
            record["path"]
            for record in history.all_backups()
            if record.get("what") not in (None, "absent") and record["path"] not in mine
        }
    )


def _with(values: t.Sequence[str], value: str) -> t.List[str]:
    return [*values, value] if value and value not in values else list(values)


def _read(path: str) -> t.Any:
    try:
        return json.loads(paths.read(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
