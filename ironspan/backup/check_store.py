# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``check-store``: does with probe objects all that a writer does, and says what is missing."""

from __future__ import annotations

import argparse
import os
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from ironspan.backup.crypto import new_data_key
from ironspan.backup.errors import PositionConflict
from ironspan.backup.names import Names
from ironspan.backup.store import LEASE_SECONDS, Store
from ironspan.program.errors import (
    AlreadyThere,
    Forbidden,
    LeaseLost,
    ProgramError,
    RoleMissing,
    ServiceError,
)

if t.TYPE_CHECKING:
    from ironspan.backup.settings import Settings

_ADVICE_ROLE = (
    "Give this identity the writer's role of docs/backup-store.md and no other role on the container."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a writer needs; ``ok`` is None where it cannot be seen from here."""

    store: str
    check: str
    ok: bool | None
    detail: str = ""
    remedy: str = ""
    transient: bool = False
    """Whether the same check may succeed later."""


class Wrong(Exception):
    """What a check found: the detail and what to do about it."""


class Unknown(Exception):
    """Why a check cannot say."""


@t.runtime_checkable
class Retaining(t.Protocol):
    """A store that can say whether a policy retains what is in it."""

    def retains(self) -> bool:
        """Say whether objects are retained for a time, whoever asks for their deletion."""


def check_store(store: Store, site: str, host: str, now: float | None = None) -> Iterator[Finding]:
    """Yield a finding for each thing that a writer of backups does, or must not be able to do.

    The probe objects stay where they cannot be deleted, a few bytes for every run.

    Args:
        store: the store.
        site: name of the site.
        host: name of this host, in the probes' names.
        now: seconds since 1970, in the probes' names.
    """
    probe = _Probe(store, f"{Names(site).probes}{host}-{int((now or time.time()) * 1000)}")
    yield _found(store.name, "list objects", probe.lists)
    creation = _found(store.name, "create an object, whole", probe.creates)
    yield creation
    if not creation.ok:
        yield Finding(store.name, "everything else", None, "It needs an object.")
        return
    for title, check in (
        ("read it back", probe.reads),
        ("an object is never replaced", probe.replaces_nothing),
        ("extend an object", probe.extends),
        ("an append at a wrong position is refused", probe.appends_nowhere_else),
        ("one holder of a lease", probe.leases),
        ("this identity may not delete", probe.deletes_nothing),
        ("a policy retains what is written", probe.retains),
    ):
        yield _found(store.name, title, check)


def _found(store: str, title: str, check: Callable[[], object]) -> Finding:
    try:
        check()
    except Unknown as why:
        return Finding(store, title, None, str(why))
    except Wrong as wrong:
        detail, remedy = wrong.args
        return Finding(store, title, False, detail, remedy)
    except ProgramError as error:
        return _failed(store, title, error)
    return Finding(store, title, True)


def _failed(store: str, title: str, error: ProgramError) -> Finding:
    transient = isinstance(error, ServiceError) and error.retryable
    return Finding(store, title, False, error.message, error.remedy, transient)


class _Probe:
    def __init__(self, store: Store, name: str) -> None:
        self.store, self.object, self.log, self.lease = store, name, f"{name}.log", f"{name}.lease"
        self.content = os.urandom(64)

    def lists(self) -> None:
        next(iter(self.store.list(self.object)), None)

    def creates(self) -> None:
        self.store.put(self.object, [self.content])

    def reads(self) -> None:
        if b"".join(self.store.read(self.object)) != self.content:
            raise Wrong("What is read is not what was written.", "Look for a proxy on the way to the store.")

    def replaces_nothing(self) -> None:
        try:
            self.store.put(self.object, [b"another"])
        except AlreadyThere:
            return
        raise Wrong("The store replaced an object.", "Look for a proxy that drops If-None-Match.")

    def extends(self) -> None:
        self.store.create_append(self.log)
        self.store.append(self.log, b"12345678", 0)

    def appends_nowhere_else(self) -> None:
        try:
            self.store.append(self.log, b"again", 0)
        except PositionConflict as conflict:
            if conflict.actual == 8:
                return
        raise Wrong(
            "An append landed at another position.",
            "Look for a proxy that drops x-ms-blob-condition-appendpos.",
        )

    def leases(self) -> None:
        lease = self.store.acquire(self.lease, LEASE_SECONDS[0], "check-store")
        try:
            lease.renew()
            self.store.acquire(self.lease, LEASE_SECONDS[0], "check-store")
        except LeaseLost:
            return
        finally:
            lease.release()
        raise Wrong("Two hold the same lease.", "The store is not one that this program can use.")

    def deletes_nothing(self) -> None:
        if not isinstance(self.store, Retaining):
            raise Unknown("A folder cannot keep its owner from deleting; copy it to another machine as well.")
        try:
            self.store.delete(self.object)
        except RoleMissing:
            return
        except Forbidden:
            raise Wrong("The role allows it, only the retention policy refused.", _ADVICE_ROLE) from None
        raise Wrong("It may: whoever takes this host over could delete the backups.", _ADVICE_ROLE)

    def retains(self) -> None:
        if not isinstance(self.store, Retaining):
            raise Unknown("A folder has no retention policy.")
        if not self.store.retains():
            raise Wrong(
                "The container has no time-based retention policy.",
                "Create it with playbooks/backup_store.yml; it protects what is there already, too.",
            )


def check_keys(settings: Mapping[str, t.Any]) -> Iterator[Finding]:
    """Yield whether data keys can be wrapped here, and whether they can be opened again here."""
    from ironspan.backup.stores import open_keys

    where, data_key = f"keys:{settings.get('kind')}", new_data_key()
    try:
        keys = open_keys(settings)
        version, wrapped = keys.wrap(data_key)
    except ProgramError as error:
        yield _failed(where, "wrap a data key", error)
        return
    yield Finding(where, "wrap a data key", True, f"version {version}")

    def opens() -> None:
        if keys.unwrap(version, wrapped) != data_key:
            raise Wrong("What comes back is another key.", "Check the name of the key and the vault.")

    yield _found(where, "open it again, which drills and restores need", opens)


def add_commands(subparsers: t.Any) -> None:
    """Add ``check-store``."""
    command = subparsers.add_parser(
        "check-store", help="do with probe objects what a writer of backups does, and say what is missing"
    )
    command.set_defaults(func=_run)


def _run(settings: Settings, arguments: argparse.Namespace) -> int:
    from ironspan.backup.stores import open_store
    from ironspan.program.command import FAILED, REFUSED, answer

    findings: list[Finding] = []
    for entry in settings.stores:
        try:
            findings += check_store(open_store(entry), settings.site, settings.host)
        except ProgramError as error:
            where = f"{entry['kind']}:{entry.get('account_url') or entry.get('path')}"
            findings.append(_failed(where, "open the store", error))
    findings += check_keys(settings.keys)
    wrong = [finding for finding in findings if finding.ok is False]
    result = {"ok": not wrong, "findings": [asdict(finding) for finding in findings]}
    answer(arguments, result, as_text(findings))
    if not wrong:
        return 0
    return FAILED if all(finding.transient for finding in wrong) else REFUSED


def as_text(findings: list[Finding]) -> str:
    """Return the findings as lines for people."""
    lines = []
    store = ""
    for finding in findings:
        if finding.store != store:
            store = finding.store
            lines.append(store)
        mark = {True: "ok", False: "MISSING", None: "not seen"}[finding.ok]
        lines.append(f"  {mark:8}  {finding.check}{': ' if finding.detail else ''}{finding.detail}")
        if finding.remedy:
            lines.append(f"            {finding.remedy}")
    return "\n".join(lines)
