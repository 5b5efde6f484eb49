# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One transaction: applied as a whole, or undone as a whole, also across killed runs."""

from __future__ import annotations

import errno
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import backup
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.compare import problem_of
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import Resource
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import Journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.revisions import taken_over
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State, Store
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import sweep
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change

Record = t.Dict[str, t.Any]


class Transaction:
    """Changes to the host that belong together.

    Args:
        store: the engine's folder, locked for writing.
        kept: what state.json holds; replaced on disk by ``commit``.
        host: knows the history of a killed run's transaction, which this one continues.
    """

    def __init__(self, store: Store, kept: State, host: LocalHost) -> None:
        self._store = store
        self._kept = kept
        self._host = host
        self._journal = Journal(store.journal_path, host.crash)

    def open(self, digest: str, plan: str = "", trial: t.Optional[Record] = None) -> None:
        """Begin, or continue what a killed run began.

        Args:
            digest: of the document.
            plan: digest of the plan that this belongs to.
            trial: ``id`` and ``seconds`` if all this goes back unless it is confirmed.
        """
        now = int(time.time())
        more: Record = {"digest": digest, "time": now, "plan": plan}
        if trial:
            # Before anything is changed, the journal included: from here on there is a way back.
            more["trial"] = self._arm(trial)
        self.reopen()
        if self._host.history.begun:
            self._host.write("resume", **more)
        else:
            self._host.write("begin", serial=self._kept.serial + 1, **more)
        if self._host.unsaved:
            self._host.write("notes", values=self._host.unsaved)

    def reopen(self) -> None:
        """Open the journal of a killed run to finish it, without a step of its own."""
        self._journal.open()
        self._host.journal = self._journal
        self._host.backup_folder = self._store.backup_folder

    def apply(self, resource: Resource, change: Change) -> None:
        """Apply one change; an exception leaves the rest to ``roll_back``."""
        host = self._host
        host.current = resource.id
        host.write(
            "start", id=resource.id, kind=resource.kind.name, spec=resource.spec, change=_without_text(change)
        )
        resource.kind.apply(resource.spec, change, host)
        host.write("done", id=resource.id)

    def _arm(self, trial: Record) -> Record:
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial as trials

        armed = trials.next_trial(self._host.history, trial)
        trials.arm(self._host, armed, self._store.folder)
        return armed

    def commit(
        self,
        settled: t.Sequence[str],
        owned: t.Mapping[str, t.List[str]],
        gone: t.Sequence[str],
        layers: t.Sequence[str] = (),
        revision: t.Optional[Record] = None,
        trial: t.Optional[Record] = None,
    ) -> None:
        """Make it final, or leave it open if it is on trial.

        Args:
            settled: resources that match now; those that wait for an input are left out, so that what they
                require counts as changed for them in a later run.
            owned: resource id -> paths that the engine is responsible for.
            gone: paths that it is responsible for no longer.
            layers: that were applied.
            revision: what to keep of the document, see ``revisions.applied_by``.
            trial: ``id`` and ``seconds`` if it has to be confirmed.
        """
        history = self._host.history
        before = history.tried or {}
        final: Record = {
            "settled": sorted({*before.get("settled", ()), *settled}),
            "owned": {**before.get("owned", {}), **owned},
            "gone": sorted({*before.get("gone", ()), *gone}),
            "layers": sorted({*before.get("layers", ()), *layers}),
            "taken": taken_over(history, self._kept.owned),
            "revision": revision,
        }
        if trial:
            self._host.write("tried", trial=self._arm(trial), **final)
            self._journal.close()
            self._host.journal = None
            return
        self._host.write("commit", **final)
        self.finish()

    def confirm(self) -> None:
        """Make final what was tried."""
        tried = dict(self._host.history.tried or {})
        self.reopen()
        self._make_room()
        for name in ("step", "trial"):
            tried.pop(name, None)
        self._host.write("commit", **tried)
        self.finish()

    def finish(self) -> None:
        """Do what follows the ``commit`` record; repeated by the next run if this one is killed meanwhile."""
        self._kept.fold(self._host.history)
        self._store.save(self._kept)
        self._host.unsaved.clear()
        self._store.revisions.fold(self._host.history)
        self._host.crash.reach()
        self._store.revisions.add_report(self._host.history, "applied")
        for record in self._host.history.all_backups():
            if record["step"] == "aside":
                backup.delete_tree(self._host.path(record["to"]))
        self._sweep()
        self._close()

    def roll_back(self, reason: str) -> t.Tuple[t.List[str], t.List[str]]:
        """Undo everything in reverse order.

        Args:
            reason: what failed, for the journal.

        Returns:
            The resources undone, and what could not be undone, in words.

        Raises:
            OSError: the disk is full, and this was on trial: systemd will try again, so it stays open.
        """
        host = self._host
        self._make_room()
        if host.history.rollback is None:
            self._write_if_possible("rollback", reason=reason)
        undone: t.List[str] = []
        troubles: t.List[str] = []
        starts = host.history.starts
        self._sweep()
        for number in range(len(starts) - 1, -1, -1):
            name = starts[number]["id"]
            if number not in host.history.undone:
                self._undo(starts[number], troubles)
                if all(earlier["id"] != name for earlier in starts[:number]):
                    self._restore(name, troubles)
                self._write_if_possible("undone", number=number)
            if name not in undone:
                undone.append(name)
        for start in starts:
            self._settle(start, troubles)
        self._sweep()
        try:
            why = (host.history.rollback or {}).get("reason") or reason
            self._store.revisions.add_report(host.history, "rolled back", why)
        except OSError:
            # Going back does not depend on being told.
            pass
        self._close()
        return undone, troubles

    def undone(self, error: Exception, name: str = "") -> EngineError:
        """Undo everything, and return the error that says what failed and what resisted.

        Args:
            error: what failed.
            name: the resource at work.
        """
        problems = error.problems if isinstance(error, EngineError) else [problem_of(name, error)]
        undone, troubles = self.roll_back(EngineError(problems).text())
        resisted = [Problem("", f"could not be undone: {text}") for text in troubles]
        return EngineError([*problems, *resisted], {"rolled_back": undone})

    def _make_room(self) -> None:
        if self._host.history.trial:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial as trials

            trials.make_room(self._store.folder)

    def _write_if_possible(self, step: str, **values: t.Any) -> None:
        """Write a step of the rollback; a full disk must not keep it from going on."""
        try:
            self._host.write(step, **values)
        except OSError:
            pass

    def _undo(self, start: Record, troubles: t.List[str]) -> None:
        kind = _resources.load(start["kind"])
        self._host.current = start["id"]
        self._host.forget_all_cached()
        if kind is not None:
            try:
                kind.undo(start["spec"], Change(**start["change"]), self._host)
            except Exception as error:
                troubles.append(f"{start['id']}: {problem_of(start['id'], error).message}")

    def _restore(self, name: str, troubles: t.List[str]) -> None:
        for record in _in_order_of_restoring(self._host.history.backups.get(name, [])):
            path = self._host.path(record["path"])
            try:
                if record["step"] == "aside":
                    trouble = backup.bring_back(path, self._host.path(record["to"]))
                else:
                    trouble = backup.restore(path, record, self._store.backup_folder)
            except OSError as error:
                if error.errno == errno.ENOSPC and self._host.history.trial:
                    raise
                trouble = problem_of(name, error).message
            if trouble:
                troubles.append(f"{name}: {trouble}")
            self._host.crash.reach()

    def _settle(self, start: Record, troubles: t.List[str]) -> None:
        settle = getattr(_resources.load(start["kind"]), "settle", None)
        if settle is None:
            return
        self._host.current = start["id"]
        self._host.forget_all_cached()
        try:
            settle(start["spec"], Change(**start["change"]), self._host)
        except Exception as error:
            troubles.append(f"{start['id']}: {problem_of(start['id'], error).message}")

    def _sweep(self) -> None:
        paths = {self._host.path(record["path"]) for record in self._host.history.all_backups()}
        for folder in paths | {os.path.dirname(path) for path in paths}:
            sweep(folder)

    def _close(self) -> None:
        self._journal.close()
        self._host.journal = None
        self._store.close_journal()
        if self._host.history.trial:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial as trials

            trials.disarm(self._host)


def _in_order_of_restoring(records: t.Sequence[Record]) -> t.List[Record]:
    """Latest first; but what was not there before goes last, and from the inside out."""
    latest_first = list(reversed(records))
    new = [record for record in latest_first if record.get("what") == "absent"]
    kept = [record for record in latest_first if record.get("what") != "absent"]
    return kept + sorted(new, key=lambda record: -str(record["path"]).count("/"))


def _without_text(change: Change) -> Record:
    """Return a change for the journal: whole files are in the backups already."""
    before = {key: value for key, value in change.before.items() if key != "text"}
    after = {key: value for key, value in change.after.items() if key != "text"}
    return {"action": change.action, "before": before, "after": after, "reason": change.reason}
