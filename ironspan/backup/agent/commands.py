# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The commands ``run``, ``snapshot`` and ``list``."""

from __future__ import annotations

import argparse
import time
import typing as t
from contextlib import nullcontext

if t.TYPE_CHECKING:
    from ironspan.backup.settings import Settings


def add_commands(subparsers: t.Any) -> None:
    """Add ``run``, ``snapshot`` and ``list``."""
    command = subparsers.add_parser("run", help="the agent: keep the backups until it is told to end")
    command.set_defaults(func=_run)
    command = subparsers.add_parser("snapshot", help="take a full snapshot now")
    command.set_defaults(func=_snapshot)
    command = subparsers.add_parser("list", help="show the snapshots, what is proven of them, and the log")
    command.set_defaults(func=_list)


def _run(settings: Settings, arguments: argparse.Namespace) -> int:
    from ironspan.backup.agent.run import run
    from ironspan.backup.rebuild.drills import drilling

    with nullcontext() if settings.drill.elsewhere else drilling(settings, arguments.settings):
        return run(settings)


def _snapshot(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup.agent.epoch import open_epoch
    from ironspan.backup.agent.snapshotter import Snapshotter
    from ironspan.backup.stores import client_of, names_of, open_keys, open_store
    from ironspan.program.command import answer

    names, store = names_of(settings), open_store(settings.stores[0])
    with client_of(settings) as client:
        header = client.status(client.first_reachable()).header
        epoch = open_epoch(store, names, header.cluster_id, time.time(), header.revision)
        identifier, taken = Snapshotter(client, store, open_keys(settings.keys), names).take(epoch)
    found = {"id": identifier, "epoch": taken.epoch, "revision": taken.revision, "size": taken.size}
    answer(arguments, found, f"{identifier}: epoch {taken.epoch}, revision {taken.revision}")


def _list(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup.agent.listing import as_text, contents
    from ironspan.backup.stores import names_of, open_store
    from ironspan.program.command import answer

    names = names_of(settings)
    found = [contents(open_store(entry), names) for entry in settings.stores]
    answer(arguments, {"site": settings.site, "stores": found}, as_text(found))
