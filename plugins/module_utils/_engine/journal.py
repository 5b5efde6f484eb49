# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The journal of one transaction: JSON lines, each on disk before the step it announces is taken.

Steps, in the order of a transaction's life:

``begin``    digest, serial (the number this transaction gives to what it changes), time, plan, trial
``resume``   a later run goes on with the transaction of a killed one
``start``    id, kind, spec, change: a resource is about to be changed
``backup``   id, path, what: the earlier state of a path, kept before the path is touched
``aside``    id, path, to: a tree is about to be moved out of the way
``notes``    values: what kinds remember, by resource id
``done``     id: the resource was changed
``tried``    all is applied, on trial: what ``commit`` will say if the trial is confirmed; trial
``commit``   settled, owned, gone, layers, taken, revision: all is applied; from here on the transaction is
             only finished, never undone
``rollback`` reason: from here on the transaction is only undone
``undone``   number: this start (counted from 0) is undone
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import sync_folder, write_all

Record = t.Dict[str, t.Any]


class Journal:
    """An append-only file of records."""

    def __init__(self, path: str, crash: CrashPoints) -> None:
        self.path = path
        self._crash = crash
        self._descriptor = -1
        self._length = 0
        self.records: t.List[Record] = []

    def open(self) -> None:
        """Open for writing; what a killed run wrote is read first, and a torn last line is cut off."""
        self.records, self._length = read_journal(self.path)
        new = not os.path.exists(self.path)
        self._descriptor = paths.lasting(self.path)
        os.ftruncate(self._descriptor, self._length)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        if new:
            sync_folder(os.path.dirname(self.path))

    def write(self, step: str, **values: t.Any) -> None:
        """Append one record and wait until it is on disk.

        Args:
            step: which step, see the module's text.
            values: what belongs to it; JSON, no secrets.
        """
        record: Record = {"step": step, **values}
        line = json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            # In two pieces, so that a test can kill the process between them.
            half = len(line) // 2 if self._crash.armed else 0
            write_all(self._descriptor, line[:half])
            self._crash.reach()
            write_all(self._descriptor, line[half:])
            os.fsync(self._descriptor)
        except OSError:
            # A full disk must not leave half a line in front of the records of the rollback.
            os.ftruncate(self._descriptor, self._length)
            os.lseek(self._descriptor, 0, os.SEEK_END)
            raise
        self._length += len(line)
        self.records.append(record)
        self._crash.reach()

    def close(self) -> None:
        """Close the file; the records stay readable here."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_journal(path: str) -> t.Tuple[t.List[Record], int]:
    """Read a journal as far as it is whole.

    Args:
        path: the file; it may be missing.

    Returns:
        Its records, and how many bytes they take; what follows is a line torn by a crash.
    """
    try:
        data = paths.read(path)
    except FileNotFoundError:
        return [], 0
    return parse_journal(data)


def parse_journal(data: bytes) -> t.Tuple[t.List[Record], int]:
    """Decode the whole records at the beginning of ``data``; see ``read_journal``."""
    records: t.List[Record] = []
    length = 0
    for line in data.splitlines(keepends=True):
        try:
            record = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or "step" not in record:
            break
        records.append(record)
        length += len(line)
    return records, length


class History:
    """What the records of an open transaction say, as questions."""

    def __init__(self, records: t.Sequence[Record]) -> None:
        self.started: t.Dict[str, int] = {}
        """Resource -> number of the last record that started it."""
        self.done: t.Dict[str, int] = {}
        self.starts: t.List[Record] = []
        """Every ``start``, oldest first; a resource has several when its run was killed."""
        self.notes: t.Dict[str, t.Dict[str, t.Any]] = {}
        self.undone: t.Set[int] = set()
        self.begun: Record = {}
        self.plan = ""
        """Digest of the plan that the last run of this transaction belonged to."""
        self.trial: Record = {}
        """The trial that this is: id, seconds, arm (how often its timer was set), until (Unix time)."""
        self.tried: t.Optional[Record] = None
        """The last ``tried`` record."""
        self.waiting = False
        """Whether everything is applied and only waits to be confirmed."""
        self.commit: t.Optional[Record] = None
        self.rollback: t.Optional[Record] = None
        self.backups: t.Dict[str, t.List[Record]] = {}
        """Resource -> its ``backup`` and ``aside`` records, oldest first."""
        self._count = 0
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        self._count += 1
        step, name = record["step"], record.get("id", "")
        if step in ("begin", "resume"):
            self.plan = record.get("plan", "")
        if step in ("begin", "resume", "tried"):
            self.trial = record.get("trial") or {}
        if step in ("begin", "resume", "tried", "commit", "rollback"):
            self.waiting = step == "tried"
        if step == "begin":
            self.begun = record
        elif step == "tried":
            self.tried = record
        elif step == "start":
            self.started[name] = self._count
            self.starts.append(record)
        elif step in ("backup", "aside"):
            self.backups.setdefault(name, []).append(record)
        elif step == "notes":
            self.notes.update(record["values"])
        elif step == "done":
            self.done[name] = self._count
        elif step == "commit":
            self.commit = record
        elif step == "rollback":
            self.rollback = record
        elif step == "undone":
            self.undone.add(record["number"])

    def all_backups(self) -> t.List[Record]:
        """Return every ``backup`` and ``aside`` record."""
        return [record for records in self.backups.values() for record in records]
