# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the engine keeps on a host, below /var/lib/ironspan: state.json, the journal, backups and the lock."""

from __future__ import annotations

import contextlib
import json
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.revisions import Revisions
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import (
    sync_folder,
    write_atomically,
)

FOLDER = "/var/lib/ironspan"
STATE_SCHEMA = 1
LOCK_WAIT_SECONDS = 300.0
"""How long a run waits for another one on the same host: longer than any single layer takes to apply."""


class State:
    """The contents of state.json.

    ``serial`` numbers the transactions. ``changed`` holds the serial of the last change of each resource,
    ``settled`` the serial up to which a resource has taken its requirements' changes into account: a unit
    whose configuration has a larger number than the unit itself still owes a restart. ``plan`` is the digest
    of the plan that the last transaction belongs to, empty when it belongs to none.
    """

    def __init__(self, data: t.Mapping[str, t.Any]) -> None:
        self.serial: int = data.get("serial", 0)
        self.changed: t.Dict[str, int] = dict(data.get("changed", {}))
        self.settled: t.Dict[str, int] = dict(data.get("settled", {}))
        self.notes: t.Dict[str, t.Dict[str, t.Any]] = dict(data.get("notes", {}))
        self.owned: t.Dict[str, t.List[str]] = dict(data.get("owned", {}))
        self.plan: str = data.get("plan", "")

    def data(self) -> t.Dict[str, t.Any]:
        """Return what state.json holds."""
        return {
            "schema": STATE_SCHEMA,
            "serial": self.serial,
            "changed": self.changed,
            "settled": self.settled,
            "notes": self.notes,
            "owned": self.owned,
            "plan": self.plan,
        }

    def fold(self, history: History) -> None:
        """Take over what a committed transaction did. Doing it twice changes nothing more.

        Args:
            history: of a journal that has a ``commit`` record.
        """
        if history.commit is None:
            return
        serial = int(history.begun["serial"])
        self.serial = max(self.serial, serial)
        self.plan = history.plan
        for name in history.started:
            self.changed[name] = serial
        for name in history.commit["settled"]:
            self.settled[name] = serial
        self._disown(history.commit.get("gone", []))
        self.owned.update(history.commit["owned"])
        self.notes.update(history.notes)

    def _disown(self, gone: t.Sequence[str]) -> None:
        for name, mine in list(self.owned.items()):
            left = [
                path for path in mine if not any(path == root or path.startswith(root + "/") for root in gone)
            ]
            if left:
                self.owned[name] = left
            else:
                del self.owned[name]


class Store:
    """The folder, for one run."""

    def __init__(self, root: str, crash: CrashPoints) -> None:
        self.folder = root.rstrip("/") + FOLDER
        self.backup_folder = os.path.join(self.folder, "backup")
        self.journal_path = os.path.join(self.folder, "journal", "open.jsonl")
        self.last_path = os.path.join(self.folder, "journal", "last.jsonl")
        self.revisions = Revisions(self.folder)
        self._state_path = os.path.join(self.folder, "state.json")
        self._lock_path = os.path.join(self.folder, "lock")
        self._crash = crash
        self._lock = -1

    def prepare(self) -> None:
        """Make the folders; only root may look inside, because backups may hold private keys."""
        for path in (self.folder, os.path.dirname(self.journal_path), self.backup_folder):
            paths.make_folders(path)
            paths.set_owner_and_mode(path, 0o700)

    def load(self) -> State:
        """Read state.json.

        Raises:
            EngineError: it is damaged, or of a newer engine.
        """
        remedy = f"Remove {FOLDER}/state.json on the host: it is rebuilt, artefacts are hashed again."
        try:
            data = json.loads(paths.read(self._state_path))
        except (FileNotFoundError, NotADirectoryError):
            return State({})
        except ValueError as error:
            raise EngineError([Problem("", f"{FOLDER}/state.json is damaged: {error}", remedy)]) from error
        if not isinstance(data, dict) or data.get("schema") != STATE_SCHEMA:
            text = f"{FOLDER}/state.json was written by another version of the engine"
            raise EngineError([Problem("", text, remedy)])
        return State(data)

    def save(self, state: State) -> None:
        """Replace state.json in one step."""
        text = json.dumps(state.data(), separators=(",", ":"), sort_keys=True)
        self._crash.reach()
        write_atomically(self._state_path, text.encode("ascii"), 0o600)
        self._crash.reach()

    def close_journal(self) -> None:
        """Give up backups and put the journal away; the last one stays for people to read."""
        for name in os.listdir(self.backup_folder):
            paths.remove(os.path.join(self.backup_folder, name))
        self._crash.reach()
        paths.rename(self.journal_path, self.last_path)
        sync_folder(os.path.dirname(self.last_path))
        self._crash.reach()

    def lock(self, writing: bool) -> None:
        """Wait for other runs; the lock is held until the process ends or ``unlock``.

        Args:
            writing: alone (apply) or beside other readers. A reader makes nothing: without a lock file
                there is nothing to wait for.

        Raises:
            EngineError: the other run is still busy after ``LOCK_WAIT_SECONDS``.
        """
        import fcntl

        until = time.monotonic() + LOCK_WAIT_SECONDS
        while self._open_lock(writing):
            try:
                fcntl.flock(self._lock, (fcntl.LOCK_EX if writing else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                if self._is_current():
                    break
                # The run before this one removed the folder when it had finished.
                self.unlock()
            except BlockingIOError:
                if time.monotonic() > until:
                    holder = os.pread(self._lock, 100, 0).decode("ascii", "replace").strip()
                    self.unlock()
                    text = f"another run ({holder or 'unknown process'}) is changing this host"
                    raise EngineError(
                        [Problem("", text, "Wait until it has ended, then run again.")]
                    ) from None
                self.unlock()
                time.sleep(0.1)
        if writing:
            self.prepare()
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"process {os.getpid()}\n".encode("ascii"), 0)

    def _open_lock(self, writing: bool) -> bool:
        """Open the lock file; False when there is none and nothing is to be written."""
        try:
            if writing:
                paths.make_folders(self.folder, 0o700)
            self._lock = paths.lasting(self._lock_path) if writing else paths.opened(self._lock_path)
        except FileNotFoundError:
            # For a writer: removed between the two lines above, so try again.
            return self._open_lock(writing) if writing else False
        return True

    def _is_current(self) -> bool:
        try:
            return os.stat(self._lock_path).st_ino == os.fstat(self._lock).st_ino
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Remove the whole folder, the lock with it."""
        # At once, by a rename: runs that wait for the lock make themselves a new folder meanwhile.
        removed = os.path.join(os.path.dirname(self.folder), ".ironspan-removed")
        with contextlib.suppress(FileNotFoundError):
            paths.remove_tree(removed)
        paths.rename(self.folder, removed)
        self._crash.reach()
        paths.remove_tree(removed)

    def unlock(self) -> None:
        """Let other runs go on."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
