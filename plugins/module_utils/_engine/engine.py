# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The engine: compare a host with its document, plan, and apply as one transaction.

``run`` is all there is to call: the module, the tests and the benches use the same function.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import digest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.compare import (
    UNKNOWN,
    Comparison,
    compare_all,
    problem_of,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import (
    Document,
    Resource,
    made_folders,
    only_layers,
    read_document,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History, read_journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.ownership import gone, owned_paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.report import (
    INTERRUPTED,
    change_entry,
    diff_entries,
    fail,
    fingerprint,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.revisions import (
    applied_by,
    insist_on_origin,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State, Store
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.transaction import Transaction

Result = t.Dict[str, t.Any]


def run(params: t.Mapping[str, t.Any], check_mode: bool = False, diff: bool = False) -> Result:
    """Compare, and unless told otherwise apply.

    Args:
        params: the module's parameters: ``mode`` (apply, assess, rollback, history, confirm or revert);
            ``document``, of which ``layers`` are taken, ``secrets``, ``certificates``, ``mirror`` (URL),
            ``plan`` (digest of the plan this belongs to), ``release`` (digest and time of the whole site's
            documents), ``trial`` (id and seconds) and ``to`` (digest) as the mode needs; and ``root``.
        check_mode: say what would be changed, change nothing.
        diff: return diffs too.

    Returns:
        The module's result; with ``failed`` when something went wrong, and then the host is as before.
    """
    result: Result = {"changed": False, "changes": [], "pending": [], "csrs": {}, "resumed": False}
    run_ = _Run(params, check_mode, diff, result)
    try:
        if run_.mode in ("history", "confirm", "revert"):
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import modes

            modes.answer(run_.mode, params, run_.store, run_.crash, check_mode, result)
        else:
            run_.execute()
    except EngineError as error:
        fail(result, error.problems)
    except OSError as error:
        # The engine's own folder: a full or read-only disk. What is open is repaired by the next run.
        problem = problem_of("", error)
        fail(result, [problem._replace(message=f"{run_.store.folder}: {problem.message}")])
    finally:
        run_.store.unlock()
    return result


class _Run:
    """One execution."""

    def __init__(self, params: t.Mapping[str, t.Any], check_mode: bool, diff: bool, result: Result) -> None:
        self.params = params
        self.mode: str = params.get("mode") or "apply"
        self.assess = self.mode != "apply"
        self.writing = not check_mode and not self.assess
        self.diff = diff
        self.result = result
        self.timings: t.Dict[str, float] = {}
        self.root: str = params.get("root") or "/"
        self.crash = CrashPoints(self.root)
        self.store = Store(self.root, self.crash)
        self.kept = State({})
        self.raw: t.Mapping[str, t.Any] = params.get("document") or {}
        self.trial: t.Dict[str, t.Any] = dict(params.get("trial") or {})

    def execute(self) -> None:
        """Fill in the result."""
        if self.mode == "rollback":
            self._compose()
        layers = self.params.get("layers")
        document = read_document(only_layers(self.raw, layers) if layers else self.raw)
        self.result["digest"] = document.digest
        self.store.lock(self.writing)
        self.kept = self.store.load()
        host = self._host(document)
        if self.writing:
            self._insist_on_its_turn(host)
        interrupted = bool(host.history.begun) and not host.history.waiting
        self.result["plan"] = host.history.plan or self.kept.plan
        if interrupted and self.writing:
            host = self._finish_what_is_over(document, host)
        self.result["resumed"] = interrupted and self.writing
        comparison = self._compare(document, host)
        planned = {name: o.change for name, o in comparison.outcomes.items() if o.change is not None}
        if self.writing:
            self._apply(document, host, comparison, planned)
        else:
            self._list(document, planned, comparison)
            self.result["fingerprint"] = fingerprint(document, planned, comparison.waiting())
        if interrupted:
            self.result["changes"].insert(0, dict(INTERRUPTED))
        self.result["changed"] = bool(self.result["changes"]) and not self.assess
        self._look_around(document, host)
        if self.assess and (self.trial or host.history.trial):
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial

            self.result["verdicts"] += trial.verdicts(host.history, self.trial, self.result)
        self.result["csrs"] = host.csrs
        self.result["timings"] = {name: round(ms, 2) for name, ms in self.timings.items()}

    def _compose(self) -> None:
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import rollback

        self.store.lock(False)
        revisions, owned = self.store.revisions.all(), self.store.load().owned
        self.store.unlock()
        self.raw, self.result["rollback"] = rollback.compose(revisions, self.params.get("to") or "", owned)
        self.result["document"] = self.raw

    def _insist_on_its_turn(self, host: LocalHost) -> None:
        """Refuse what would mix with a trial, or start a rollback from where the host is no more."""
        if host.history.trial or self.trial:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial

            trial.insist_on_none(host.history, self.trial.get("id"))
        if self.raw.get("rollback"):
            insist_on_origin(self.raw["rollback"], self.store.revisions)

    def _compare(self, document: Document, host: LocalHost) -> Comparison:
        try:
            return compare_all(document, host, self.timings)
        except EngineError as error:
            if self.writing and host.history.begun:
                # There is no way forward for what a killed run began, so it goes back.
                transaction = self._transaction(host)
                transaction.reopen()
                self._roll_back(transaction, error)
            raise

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

    def _finish_what_is_over(self, document: Document, host: LocalHost) -> LocalHost:
        """Finish a committed transaction or a begun rollback; an open one is continued later."""
        transaction = self._transaction(host)
        if host.history.commit is not None:
            transaction.reopen()
            transaction.finish()
        elif host.history.rollback is not None:
            transaction.reopen()
            transaction.roll_back("")
            # What the undone transaction remembered is void.
            self.kept = self.store.load()
        else:
            return host
        return self._host(document)

    def _list(self, document: Document, changes: t.Mapping[str, Change], comparison: Comparison) -> None:
        waiting = comparison.waiting()
        self.result["pending"] = [{"resource": name, "needs": needs} for name, needs in waiting.items()]
        listed = [resource for resource in document.resources if resource.id in changes]
        self.result["changes"] = [change_entry(resource, changes[resource.id]) for resource in listed]
        if self.diff:
            self.result["diff"] = [
                entry for resource in listed for entry in diff_entries(resource, changes[resource.id])
            ]

    def _apply(
        self,
        document: Document,
        host: LocalHost,
        plan: Comparison,
        planned: t.Mapping[str, Change],
    ) -> None:
        applied: t.Dict[str, Change] = {}
        comparison = plan
        owned = owned_paths(document, plan)
        if planned or (host.history.begun and not host.history.waiting):
            transaction = self._transaction(host)
            self._open(transaction, document, host)
            host.planned.clear()
            comparison = Comparison(host, self.timings)
            for resource in document.resources:
                try:
                    change = self._fresh(resource, plan, comparison, applied)
                    if change is not None:
                        applied[resource.id] = change
                        self._timed(transaction, resource, change)
                except Exception as error:
                    self._roll_back(transaction, error, resource.id)
            owned = owned_paths(document, comparison)
            settled = [name for name, outcome in comparison.outcomes.items() if not outcome.needs]
            whole = digest(self.raw)
            try:
                transaction.commit(
                    settled,
                    owned,
                    gone(document, comparison),
                    document.layers,
                    applied_by(self.raw, whole, self.params.get("release") or {}, self.store.revisions),
                    self.trial,
                )
            except (OSError, EngineError) as error:
                if host.history.commit is not None:
                    raise
                self._roll_back(transaction, error)
        elif host.history.begun:
            # On trial, and nothing more to do: what was learnt goes if the trial goes.
            pass
        elif host.unsaved or any(self.kept.owned.get(name) != path for name, path in owned.items()):
            self.kept.owned.update(owned)
            self.store.save(self.kept)
        if document.forget and not comparison.waiting() and not self.kept.owned:
            self.store.remove()
        self._list(document, applied, comparison)
        self.result["fingerprint"] = fingerprint(document, {}, comparison.waiting())

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
                self._roll_back(transaction, error)
            raise

    def _fresh(
        self, resource: Resource, plan: Comparison, comparison: Comparison, applied: t.Mapping[str, Change]
    ) -> t.Optional[Change]:
        """Return the change to apply: the planned one, or a new comparison if its requirements changed."""
        outcome = plan.outcomes[resource.id]
        waiting = comparison.waiting()
        if outcome.change is UNKNOWN or any(
            name in applied or (name in waiting and outcome.change) for name in resource.references
        ):
            comparison.host.forget_all_cached()
            outcome = comparison.compare(resource, ())
        comparison.outcomes[resource.id] = outcome
        if outcome.problem is not None:
            raise EngineError([outcome.problem])
        return outcome.change

    def _timed(self, transaction: Transaction, resource: Resource, change: Change) -> None:
        started = time.perf_counter()
        transaction.apply(resource, change)
        self.timings[resource.id] += (time.perf_counter() - started) * 1000

    def _roll_back(self, transaction: Transaction, error: Exception, name: str = "") -> None:
        problems = error.problems if isinstance(error, EngineError) else [problem_of(name, error)]
        undone, troubles = transaction.roll_back(EngineError(problems).text())
        self.result["rolled_back"] = undone
        self.result["changes"] = []
        raise EngineError([*problems, *(Problem("", f"could not be undone: {text}") for text in troubles)])

    def _look_around(self, document: Document, host: LocalHost) -> None:
        from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import facts

        host.current = ""
        self.result["facts"] = facts.collect(host)
        if self.assess and not document.fitness:
            self.result["verdicts"] = []
        elif self.assess:
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import fitness

            self.result["verdicts"] = fitness.judge(document.fitness, self.result["facts"], host)
