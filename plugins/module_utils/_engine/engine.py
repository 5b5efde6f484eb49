# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The engine: compare a host with its document, plan, and apply as one transaction.

``run`` is all there is to call: the module, the tests and the benches use the same function.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import digest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.compare import (
    Seen,
    compare_all,
    problem_of,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import (
    Document,
    made_folders,
    only_layers,
    read_document,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History, read_journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.ownership import gone, owned_paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.report import (
    INTERRUPTED,
    change_entry,
    diff_entries,
    failed,
    fingerprint,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.revisions import (
    applied_by,
    documents,
    insist_on_origin,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State, Store

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.transaction import Transaction

Result = t.Dict[str, t.Any]

WITHOUT_DOCUMENT = ("history", "confirm", "revert")


def run(params: t.Mapping[str, t.Any], check_mode: bool = False, diff: bool = False) -> Result:
    """Compare, and unless told otherwise apply.

    Args:
        params: the module's parameters: ``mode`` (apply, assess, rollback, history, confirm or revert);
            ``document``, of which ``layers`` are taken, ``secrets``, ``certificates``, ``mirror`` (URL),
            ``plan`` (digest of the plan this belongs to), ``release`` (digest and time of the whole site's
            documents), ``trial`` (id and seconds), ``to`` (digest) and ``unlike`` (resource, field and
            value) as the mode needs; and ``root``.
        check_mode: say what would be changed, change nothing.
        diff: return diffs too.

    Returns:
        The module's result; with ``failed`` when something went wrong, and then the host is as before.
    """
    run_ = _Run(params, check_mode, diff)
    try:
        answer = run_.answer()
        return {**run_.told, **answer}
    except EngineError as error:
        return failed({**run_.told, **error.told}, error.problems)
    except OSError as error:
        # The engine's own folder: a full or read-only disk. What is open is repaired by the next run.
        problem = problem_of("", error)
        return failed(run_.told, [problem._replace(message=f"{run_.store.folder}: {problem.message}")])
    finally:
        run_.store.unlock()


class _Run:
    """One execution: read, compare, apply, commit, answer. Each step takes what the one before returned."""

    def __init__(self, params: t.Mapping[str, t.Any], check_mode: bool, diff: bool) -> None:
        self.params = params
        self.check_mode = check_mode
        self.diff = diff
        self.mode: str = params.get("mode") or "apply"
        self.assess = self.mode != "apply"
        self.writing = not check_mode and not self.assess
        self.timings: t.Dict[str, float] = {}
        self.root: str = params.get("root") or "/"
        self.crash = CrashPoints(self.root)
        self.store = Store(self.root, self.crash)
        self.kept = State({})
        self.raw: t.Mapping[str, t.Any] = params.get("document") or {}
        self.part = self.raw
        self.trial: t.Dict[str, t.Any] = dict(params.get("trial") or {})
        self.interrupted = False
        self.told: Result = {"changed": False, "changes": [], "pending": [], "csrs": {}, "resumed": False}
        """What is known so far, which is told of a run that fails too."""

    def answer(self) -> Result:
        """Return what there is to tell beside ``told``."""
        if self.mode in WITHOUT_DOCUMENT:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import modes

            return modes.answer(self.mode, self.params, self.store, self.crash, self.check_mode)
        document = self._read()
        host = self._take(document)
        document = self._with_removal(document, host)
        plan = self._compare(document, host)
        done = self._apply(document, host, plan) if self.writing else plan
        found = self._changes(document, done)
        return {**found, **self._surroundings(document, host, found)}

    def _read(self) -> Document:
        """Return the document, composed on this host if the mode is to go back."""
        if self.mode == "rollback":
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import rollback

            self.store.lock(False)
            revisions, owned = self.store.revisions.all(), self.store.load().owned
            self.store.unlock()
            to, unlike = self.params.get("to") or "", self.params.get("unlike") or {}
            self.raw, about = rollback.compose(revisions, to, owned, unlike)
            self.told.update(rollback=about, document=self.raw)
        layers = self.params.get("layers")
        self.part = only_layers(self.raw, layers) if layers else self.raw
        document = read_document(self.part)
        self.told["digest"] = document.digest
        return document

    def _take(self, document: Document) -> LocalHost:
        """Lock the host and return it, once what an earlier run left is finished as far as it is over."""
        self.store.lock(self.writing)
        self.kept = self.store.load()
        host = self._host(document)
        history = host.history
        if self.writing:
            self._insist_on_its_turn(host)
        self.interrupted = bool(history.begun) and not history.waiting
        self.told.update(plan=history.plan or self.kept.plan, resumed=self.interrupted and self.writing)
        if not self.told["resumed"] or (history.commit is None and history.rollback is None):
            return host
        transaction = self._transaction(host)
        transaction.reopen()
        if history.commit is not None:
            transaction.finish()
        else:
            transaction.roll_back("")
            # What the undone transaction remembered is void.
            self.kept = self.store.load()
        return self._host(document)

    def _with_removal(self, document: Document, host: LocalHost) -> Document:
        """Return the document with the removal of what is the engine's and wanted no longer."""
        if not self.part.get("prunes"):
            return document
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import removal

        former = functools.partial(documents, self.store.revisions)
        resources = removal.pruned(self.part, self.kept.owned, host.history, former)
        if resources is None:
            return document
        return read_document({**self.part, "resources": resources})._replace(digest=document.digest)

    def _insist_on_its_turn(self, host: LocalHost) -> None:
        """Refuse what would mix with a trial, or start a rollback from where the host is no more."""
        if host.history.trial or self.trial:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial

            trial.insist_on_none(host.history, self.trial.get("id"))
        if self.raw.get("rollback"):
            insist_on_origin(self.raw["rollback"], self.store.revisions)

    def _host(self, document: Document) -> LocalHost:
        history = History(read_journal(self.store.journal_path)[0])
        if history.commit is not None and not self.writing:
            # Committed, but killed before state.json was written: see it as the next run will.
            self.kept.fold(history)
            history = History([{"step": "begin", "serial": self.kept.serial}])
        elif history.waiting and not self.writing:
            # On trial: what was tried is what is there.
            trial, history.commit = history.trial, history.tried
            self.kept.fold(history)
            history = History([])
            history.trial = trial
        return LocalHost(
            root=self.root,
            mirror=(self.params.get("mirror") or "").rstrip("/"),
            check_mode=not self.writing,
            secrets=self.params.get("secrets") or {},
            certificates=self.params.get("certificates") or {},
            kept=self.kept,
            history=history,
            crash=self.crash,
            folders=made_folders(document),
        )

    def _transaction(self, host: LocalHost) -> Transaction:
        # Most runs change nothing: what only changes need is imported when it is needed.
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import transaction

        return transaction.Transaction(self.store, self.kept, host)

    def _compare(self, document: Document, host: LocalHost) -> Seen:
        try:
            comparison = compare_all(document, host, self.timings)
        except EngineError as error:
            if self.writing and host.history.begun:
                # There is no way forward for what a killed run began, so it goes back.
                transaction = self._transaction(host)
                transaction.reopen()
                raise transaction.undone(error) from error
            raise
        outcomes = comparison.outcomes.items()
        return Seen(comparison, {name: o.change for name, o in outcomes if o.change is not None})

    def _apply(self, document: Document, host: LocalHost, plan: Seen) -> Seen:
        """Apply what is planned, or go on with what an earlier run began, and return what was done."""
        done = plan
        if plan.changes or (host.history.begun and not host.history.waiting):
            done = self._transact(document, host, plan)
        elif not host.history.begun:
            # On trial it is not kept: what was learnt goes if the trial goes.
            owned = owned_paths(document, plan.comparison)
            if host.unsaved or any(self.kept.owned.get(name) != path for name, path in owned.items()):
                self.kept.owned.update(owned)
                self.store.save(self.kept)
        if document.forget and not done.comparison.waiting() and not self.kept.owned:
            self.store.remove()
        return done

    def _transact(self, document: Document, host: LocalHost, plan: Seen) -> Seen:
        """Apply in one transaction, and commit; whatever fails, all of it is undone."""
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import applying

        transaction = self._transaction(host)
        self._open(transaction, document, host)
        done = applying.apply_all(transaction, document, plan)
        try:
            transaction.commit(
                [name for name, outcome in done.comparison.outcomes.items() if not outcome.needs],
                owned_paths(document, done.comparison),
                gone(document, done.comparison),
                document.layers,
                applied_by(
                    self.raw, digest(self.raw), self.params.get("release") or {}, self.store.revisions
                ),
                self.trial,
            )
        except (OSError, EngineError) as error:
            if host.history.commit is not None:
                raise
            raise transaction.undone(error) from error
        return done

    def _open(self, transaction: Transaction, document: Document, host: LocalHost) -> None:
        if self.trial:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial

            trial.insist_on_triable((r.id, r.kind.name) for r in document.resources if r.id in host.planned)
        try:
            transaction.open(document.digest, self.params.get("plan") or "", self.trial)
        except (OSError, EngineError) as error:
            if self.trial and host.history.begun:
                # Whether the timer of what was tried before still runs is not certain.
                transaction.reopen()
                raise transaction.undone(error) from error
            raise

    def _changes(self, document: Document, done: Seen) -> Result:
        """Return what changes, what waits, and the fingerprint of what was seen."""
        listed = [(r, done.changes[r.id]) for r in document.resources if r.id in done.changes]
        changes = [change_entry(resource, change) for resource, change in listed]
        if self.interrupted:
            changes.insert(0, dict(INTERRUPTED))
        waiting = done.comparison.waiting()
        told: Result = {
            "changes": changes,
            "changed": bool(changes) and not self.assess,
            "pending": [{"resource": name, "needs": needs} for name, needs in waiting.items()],
            "fingerprint": fingerprint(document, {} if self.writing else done.changes, waiting),
        }
        if self.diff:
            told["diff"] = [entry for each in listed for entry in diff_entries(*each)]
        return told

    def _surroundings(self, document: Document, host: LocalHost, found: Result) -> Result:
        """Return facts, verdicts, requests for certificates and timings."""
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import facts

        host.current = ""
        told: Result = {"facts": facts.collect(host)}
        if self.assess:
            told["verdicts"] = []
        if self.assess and document.fitness:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import fitness

            told["verdicts"] = fitness.judge(document.fitness, told["facts"], host)
        if self.assess and (self.trial or host.history.trial):
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial

            told["verdicts"] += trial.verdicts(host.history, self.trial, found)
        timings = {name: round(ms, 2) for name, ms in self.timings.items()}
        return {**told, "csrs": host.csrs, "timings": timings}
