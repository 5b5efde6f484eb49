# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``accept``: consent to a database that is older than its backup, or not that of its backup."""

from __future__ import annotations

import argparse
import time
import typing as t

from ironspan.program.errors import ProgramError

if t.TYPE_CHECKING:
    from ironspan.backup.agent.guard import Served
    from ironspan.backup.names import Names
    from ironspan.backup.settings import Settings
    from ironspan.backup.store import Store


def add_commands(subparsers: t.Any) -> None:
    """Add ``accept``."""
    command = subparsers.add_parser(
        "accept",
        help="go on with the database of this host, older than its backup or not",
        description="Begin an epoch of the backup for the database that etcd of this host serves, or served "
        "before it was closed, and let etcd start again. What the backup has beyond it stays in the former "
        "epoch. Nothing happens where the database is the one that was backed up.",
    )
    command.set_defaults(func=_accept)


def accept(store: Store, names: Names, served: Served, against: int, now: float) -> int:
    """Begin an epoch for a database, unless that was done already, on another host for example.

    Args:
        store: the first one.
        names: of the site.
        served: the database.
        against: the epoch that it is not of, or is older than.
        now: seconds since 1970.

    Returns:
        The epoch that it has now.

    Raises:
        ProgramError: another database got its epoch since.
        ServiceError: the store failed; calling again is safe.
    """
    from ironspan.backup.agent.epoch import newest
    from ironspan.backup.manifest import Restored
    from ironspan.backup.new_epoch import begin

    last = newest(store, names)
    if last is not None and last.epoch > against:
        if last.cluster_id != served.cluster:
            raise ProgramError(
                f"Epoch {last.epoch} of the backup belongs to cluster {last.cluster_id} since: the store was "
                "restored.",
                "Rebuild this member: ironspan apply member_replace.",
            )
        return last.epoch
    return begin(store, names, served.cluster, Restored("disk", served.revision, 0, 0), now).epoch


def _accept(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup import catalogue
    from ironspan.backup.agent import guard
    from ironspan.backup.agent.epoch import newest
    from ironspan.backup.stores import client_of, names_of, open_store
    from ironspan.etcd.errors import EtcdError
    from ironspan.program.command import answer

    def done(epoch: int, text: str) -> None:
        answer(arguments, {"accepted": epoch > 0, "epoch": epoch, "text": text}, text)

    store, names = open_store(settings.stores[0]), names_of(settings)
    path = guard.closing_file(settings)
    if path.exists():
        served, against = guard.refused(path)
        epoch = accept(store, names, served, against, time.time())
        path.unlink()
        return done(epoch, f"epoch {epoch} belongs to cluster {served.cluster}; start etcd again")
    last = newest(store, names)
    unsigned = last is None and bool(catalogue.unsigned(store, names).epochs)
    if last is None and not unsigned:
        return done(0, "there is no backup yet")
    try:
        with client_of(settings) as client:
            header = client.header(endpoint=settings.etcd.local)
    except EtcdError:
        return done(0, "etcd of this host is not closed, and does not answer")
    served = guard.Served(f"{header.cluster_id:x}", header.member_id, header.revision)
    kept = guard.kept_in(store, names, last) if last else None
    if kept and (served.cluster, True) == (kept.cluster, served.revision >= kept.revision):
        return done(0, "etcd of this host serves what was backed up")
    epoch = accept(store, names, served, kept.epoch if kept else 0, time.time())
    return done(epoch, f"epoch {epoch} belongs to cluster {served.cluster}")
