# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The engine: compare a host with its document, plan, and apply as one transaction.

``run`` is all there is to call: the module, the tests and the benches use the same function.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils import _bytecode
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
    read_document,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History, read_journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.report import (
    change_entry,
    diff_entries,
    fingerprint,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State, Store
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.types import Change

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.transaction import Transaction

Result = t.Dict[str, t.Any]

INTERRUPTED = {
    "resource": "ironspan/transaction",
    "kind": "transaction",
    "action": "finish",
    "before": {"state": "interrupted"},
    "after": {"state": "finished"},
    "reason": "an earlier run was killed in the middle",
}
"""Listed among the changes when a killed run's transaction is there to be finished or undone."""


def run(params: t.Mapping[str, t.Any], check_mode: bool = False, diff: bool = False) -> Result:
    """Compare, and unless told otherwise apply.

    Args:
        params: the module's parameters: ``document``, and optionally ``mode`` (apply or assess), ``secrets``,
            ``certificates``, ``mirror`` (URL), ``plan`` (digest of the plan this belongs to) and ``root``.
        check_mode: say what would be changed, change nothing.
        diff: return diffs too.

    Returns:
        The module's result; with ``failed`` when something went wrong, and then the host is as before.
    """
    result: Result = {"changed": False, "changes": [], "pending": [], "csrs": {}, "resumed": False}
    run_ = _Run(params, check_mode, diff, result)
    try:
        run_.execute()
    except EngineError as error:
        _fail(result, error.problems)
    except OSError as error:
        # The engine's own folder: a full or read-only disk. What is open is repaired by the next run.
        _fail(result, [problem_of("", error)])
    finally:
        run_.store.unlock()
    return result


def _fail(result: Result, problems: t.Sequence[Problem]) -> None:
    first = problems[0]
    result.update(
        failed=True,
        msg=EngineError(problems).text() + (f". {first.remedy}" if first.remedy else ""),
        failed_resource=first.resource,
        remedy=first.remedy,
        problems=[problem._asdict() for problem in problems],
    )
    result.setdefault("rolled_back", [])


class _Run:
    """One execution."""

    def __init__(self, params: t.Mapping[str, t.Any], check_mode: bool, diff: bool, result: Result) -> None:
        self.params = params
        self.assess = params.get("mode", "apply") == "assess"
        self.writing = not check_mode and not self.assess
        self.diff = diff
        self.result = result
        self.timings: t.Dict[str, float] = {}
        self.root: str = params.get("root") or "/"
        self.crash = CrashPoints(self.root)
        self.store = Store(self.root, self.crash)
        self.kept = State({})

    def execute(self) -> None:
        """Fill in the result."""
        document = read_document(self.params["document"])
        self.result["digest"] = document.digest
        self.store.lock(self.writing)
        self.kept = self.store.load()
        host = self._host(document)
        interrupted = bool(host.history.begun)
        self.result["plan"] = host.history.plan or self.kept.plan
        if interrupted and self.writing:
            host = self._finish_what_is_over(document, host)
        self.result["resumed"] = interrupted and self.writing
        comparison = self._compare(document, host)
        planned = {name: o.change for name, o in comparison.outcomes.items() if o.change is not None}
        if self.writing:
            self._apply(document, host, comparison, planned)
        else:
            self._describe(document, comparison, planned)
        if interrupted:
            self.result["changes"].insert(0, dict(INTERRUPTED))
        self.result["changed"] = bool(self.result["changes"]) and not self.assess
        self._look_around(document, host)
        self.result["csrs"] = host.csrs
        self.result["timings"] = {name: round(ms, 2) for name, ms in self.timings.items()}

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

    def _describe(
        self,
        document: Document,
        comparison: Comparison,
        planned: t.Mapping[str, Change],
    ) -> None:
        self._list(document, planned, comparison)
        self.result["fingerprint"] = fingerprint(document, planned, comparison.waiting())

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
        owned = _owned(document, plan)
        if planned or host.history.begun:
            transaction = self._transaction(host)
            transaction.open(document.digest, self.params.get("plan") or "")
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
            owned = _owned(document, comparison)
            settled = [name for name, outcome in comparison.outcomes.items() if not outcome.needs]
            try:
                transaction.commit(settled, owned, _gone(document, comparison))
            except OSError as error:
                if host.history.commit is not None:
                    raise
                self._roll_back(transaction, error)
        elif host.unsaved or any(self.kept.owned.get(name) != path for name, path in owned.items()):
            self.kept.owned.update(owned)
            self.store.save(self.kept)
        if document.forget and not comparison.waiting() and not self.kept.owned:
            # What this execution still imports may lie in the folder that goes.
            from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import facts  # noqa: F401

            self.store.remove()
        else:
            _bytecode.keep(self.root)
        self._list(document, applied, comparison)
        self.result["fingerprint"] = fingerprint(document, {}, comparison.waiting())

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


def _gone(document: Document, comparison: Comparison) -> t.List[str]:
    """Return the paths that the document removes: whatever comes there later is not the engine's."""
    return [
        resource.spec["path"].rstrip("/")
        for resource in document.resources
        if resource.kind.name == "absent" and not comparison.outcomes[resource.id].needs
    ]


def _owned(document: Document, comparison: Comparison) -> t.Dict[str, t.List[str]]:
    """Return the paths that the engine is responsible for once the document is applied."""
    owned = {}
    for resource in document.resources:
        if resource.kind.name == "absent" or comparison.outcomes[resource.id].needs:
            continue
        path = resource.spec.get("path") or resource.spec.get("key_path")
        if path and resource.spec.get("unpack", "none") != "none":
            # A folder such as /usr/local is shared: only what was unpacked there is ours.
            members = comparison.host.note(resource.id).get("members", {})
            owned[resource.id] = [f"{path.rstrip('/')}/{name}" for name in sorted(members)]
        elif path:
            owned[resource.id] = [path.rstrip("/")]
    return owned
