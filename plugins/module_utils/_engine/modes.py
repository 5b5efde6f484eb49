# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the engine does without a document: tell what was applied, confirm a trial, take it back."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History, read_journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State, Store
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.transaction import Transaction

NOT_CONFIRMED = "on trial, and not confirmed in time"
JUST_NOW_SECONDS = 3600
"""Whoever confirms this long after a trial went back most likely means that one."""
TAKEN_BACK = "on trial, and taken back by hand"


def answer(
    mode: str, params: t.Mapping[str, t.Any], store: Store, crash: CrashPoints, check_mode: bool
) -> t.Dict[str, t.Any]:
    """Return what there is to tell.

    Args:
        mode: history, confirm or revert.
        params: ``root``, and for revert ``expired``: id and number of the timer that ran out; without it,
            what is on trial is taken back whatever its timer says.
        store: the engine's folder.
        crash: for tests.
        check_mode: change nothing.

    Raises:
        EngineError: what is to be confirmed went back already, or is not complete.
    """
    writing = mode != "history" and not check_mode
    store.lock(writing)
    kept = store.load()
    host = _host(params, store, kept, crash)
    history = host.history
    is_open = bool(history.trial) and history.commit is None and history.rollback is None
    told: t.Dict[str, t.Any] = {"trial": {**history.trial, "complete": history.waiting} if is_open else {}}
    if mode == "history":
        revisions = [_summary(revision) for revision in store.revisions.all()]
        return {**told, "revisions": revisions, "reports": store.revisions.reports()}
    expired = params.get("expired")
    if expired and history.trial and not _is_due(history, expired):
        return {**told, "msg": "the trial was set again or is another one; this timer is void"}
    if mode == "confirm" and not is_open and history.commit is None:
        return {**told, "msg": _say_nothing_is_open(store)}
    if mode == "confirm" and history.commit is None and not history.waiting:
        text = "the run that tries these changes was cut off, so not all of them are there"
        raise EngineError([Problem("", text, "Wait until they go back, then try again.")], told)
    if history.trial:
        action = "confirm" if mode == "confirm" or history.commit else "undo"
        told.update(changed=True, changes=_told(history, action))
    if not writing:
        return told
    transaction = Transaction(store, kept, host)
    if history.trial and history.commit is not None:
        transaction.reopen()
        transaction.finish()
    elif mode == "confirm":
        transaction.confirm()
    elif history.trial:
        transaction.reopen()
        undone, troubles = transaction.roll_back(NOT_CONFIRMED if expired else TAKEN_BACK)
        told["rolled_back"] = undone
        if troubles:
            raise EngineError([Problem("", f"could not be undone: {text}") for text in troubles], told)
        return {**told, "msg": f"taken back: {', '.join(undone) or 'nothing had been changed yet'}"}
    else:
        trial.disarm(host)
        return told
    return {**told, "msg": "confirmed"}


def _host(params: t.Mapping[str, t.Any], store: Store, kept: State, crash: CrashPoints) -> LocalHost:
    return LocalHost(
        root=params.get("root") or "/",
        mirror="",
        check_mode=False,
        secrets={},
        certificates={},
        kept=kept,
        history=History(read_journal(store.journal_path)[0]),
        crash=crash,
    )


def _is_due(history: History, expired: t.Mapping[str, t.Any]) -> bool:
    # A number above the journal's: the run was killed between setting the timer and saying so.
    return bool(history.trial["id"] == expired["id"] and history.trial["arm"] <= expired["arm"])


def _say_nothing_is_open(store: Store) -> str:
    """Return that; it is an error when somebody who confirms now comes too late.

    Raises:
        EngineError: the last trial went back a short while ago.
    """
    last = (store.revisions.reports() or [{}])[-1]
    gone_back = last.get("reason") in (NOT_CONFIRMED, TAKEN_BACK)
    if gone_back and time.time() - last.get("ended", 0) < JUST_NOW_SECONDS:
        at = time.strftime("%H:%M:%S UTC", time.gmtime(last["ended"]))
        text = f"nothing is on trial on this host any more: what was tried went back at {at}"
        raise EngineError([Problem("", text, "Try it again, and confirm in time.")])
    return "nothing is on trial on this host"


def _told(history: History, action: str) -> t.List[t.Dict[str, t.Any]]:
    return [
        {
            "resource": start["id"],
            "kind": start["kind"],
            "action": action,
            "before": {"state": "on trial"},
            "after": {"state": "confirmed" if action == "confirm" else "as before"},
            "reason": "",
        }
        for start in history.starts
    ]


def _summary(revision: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    names = ("number", "digest", "time", "release", "layers", "plans", "undoes")
    return {name: revision[name] for name in names if name in revision}
