# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The commands ``rebuild``, ``drill``, ``drills`` and ``verify``."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import typing as t
from collections.abc import Callable
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.backup.errors import ChainError
from ironspan.program import process
from ironspan.program.errors import ProgramError, ServiceError

if t.TYPE_CHECKING:
    from ironspan.backup.crypto import Keys
    from ironspan.backup.names import Names
    from ironspan.backup.rebuild.rebuild import Tools
    from ironspan.backup.settings import Settings
    from ironspan.backup.store import Store

LOG = logging.getLogger(__name__)
_PROGRAMS = Path("/usr/local/bin")


def add_commands(subparsers: t.Any) -> None:
    """Add ``rebuild``, ``drill``, ``drills`` and ``verify``."""
    command = subparsers.add_parser("rebuild", help="make the database of a point from the backups")
    command.add_argument(
        "--point",
        default="latest",
        metavar="POINT",
        help="latest, time:RFC3339 or revision:N; unsigned:POINT for "
        "what was written before backups were signed",
    )
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="where it goes")
    _common(command)
    command.set_defaults(func=_rebuild)
    command = subparsers.add_parser("drill", help="restore a snapshot and its log into a scratch etcd")
    command.add_argument("snapshot", nargs="?", default="", metavar="SNAPSHOT", help="default: the newest")
    command.add_argument("--folder", type=Path, metavar="DIR", help="for its files, which are removed")
    command.add_argument(
        "--apiserver", type=Path, metavar="PROGRAM", help="a kube-apiserver that has to serve from it"
    )
    command.add_argument("--metrics", type=Path, metavar="FILE", help="for the node exporter")
    _common(command)
    command.set_defaults(func=_drill)
    command = subparsers.add_parser("drills", help="do the drills that are due, until it is told to end")
    command.add_argument(
        "--once", action="store_true", help="do one, if one is due, and end: on a host that is no member"
    )
    command.set_defaults(func=_drills)
    command = subparsers.add_parser("verify", help="read every byte of the backups")
    command.add_argument("snapshot", nargs="?", default="", metavar="SNAPSHOT", help="default: all of them")
    _common(command)
    command.set_defaults(func=_verify)


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--store", type=int, metavar="NUMBER", help="of the settings' stores, from 1; default: any that can"
    )
    command.add_argument(
        "--programs", type=Path, default=_PROGRAMS, metavar="DIR", help="where etcd and etcdutl are"
    )


def _rebuild(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup.catalogue import catalogue, unsigned
    from ironspan.backup.chain import Point, choose, last_seen
    from ironspan.backup.rebuild.rebuild import Facts, Rebuild
    from ironspan.program.command import answer

    point = Point.parse(arguments.point)

    def work(store: Store, keys: Keys, names: Names) -> Facts:
        found = unsigned(store, names) if point.unsigned else catalogue(store, names)
        chain = choose(store, found, point, keys)
        signed = last_seen(store, catalogue(store, names)) if point.unsigned else 0
        tools = _tools(settings, arguments, limited=False)
        job = Rebuild(store, keys, found, chain, arguments.output, tools, signed)
        job.refuse()
        return job.run()

    facts = _in_any_store(settings, arguments, work)
    text = f"{facts.database}: revision {facts.revision} of epoch {facts.epoch}, {facts.objects} keys"
    answer(arguments, dataclasses.asdict(facts), text)


def _drill(settings: Settings, arguments: argparse.Namespace) -> int:
    from ironspan.backup.manifest import Verdict
    from ironspan.backup.rebuild.drill import Place, drill, metrics_text
    from ironspan.program.command import FAILED, answer

    folder = arguments.folder or settings.spool.path.parent / "drill"
    place = Place(settings.host, folder, _tools(settings, arguments, limited=True), arguments.apiserver)

    def work(store: Store, keys: Keys, names: Names) -> Verdict:
        return drill(store, keys, names, arguments.snapshot, place)

    verdict = _in_any_store(settings, arguments, work)
    if arguments.metrics:
        write_file(arguments.metrics, metrics_text(verdict).encode())
    what = "verified" if verdict.verified else f"NOT verified: {'; '.join(verdict.findings)}"
    text = f"{verdict.snapshot}: {what} (to revision {verdict.revision}, {verdict.seconds:.1f} s)"
    answer(arguments, dataclasses.asdict(verdict), text)
    return 0 if verdict.verified else FAILED


def _drills(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup.rebuild.drills import Drills, drilling
    from ironspan.backup.stores import open_store

    if arguments.once:
        store = open_store(settings.stores[0])
        Drills(settings, arguments.settings, store, leads=lambda: False).step()
        return
    with drilling(settings, arguments.settings):
        process.ending().wait()


def _verify(settings: Settings, arguments: argparse.Namespace) -> int:
    from ironspan.backup.catalogue import catalogue
    from ironspan.backup.rebuild.drill import find
    from ironspan.backup.rebuild.verify import Read, verify
    from ironspan.program.command import FAILED, answer

    def work(store: Store, keys: Keys, names: Names) -> list[Read]:
        found = catalogue(store, names)
        chosen = find(found, arguments.snapshot)
        wanted = [one for one in found.snapshots if one is chosen or not arguments.snapshot]
        return list(verify(store, keys, found, wanted))

    read = _in_any_store(settings, arguments, work)
    lines = [f"{one.snapshot}: {one.problem or f'whole to revision {one.revision}'}" for one in read]
    answer(arguments, [dataclasses.asdict(one) for one in read], "\n".join(lines))
    return FAILED if any(one.problem for one in read) else 0


def _tools(settings: Settings, arguments: argparse.Namespace, limited: bool) -> Tools:
    from ironspan.backup.rebuild.programs import Programs
    from ironspan.backup.rebuild.rebuild import Tools
    from ironspan.backup.rebuild.scratch import NO_LIMITS, Limits

    programs = Programs(arguments.programs / "etcd", arguments.programs / "etcdutl")
    limits = Limits(settings.drill.memory_max, settings.drill.cpu_quota_percent)
    return Tools(programs, limits if limited else NO_LIMITS)


def _in_any_store[Result](
    settings: Settings, arguments: argparse.Namespace, work: Callable[[Store, Keys, Names], Result]
) -> Result:
    """Work with the first store that can be read and has what is needed; its copies have the same names.

    Raises:
        ProgramError: what the first store said, when none can.
    """
    from ironspan.backup.stores import names_of, open_keys, open_store

    stores = list(settings.stores)
    if arguments.store is not None:
        if not 1 <= arguments.store <= len(stores):
            raise ProgramError(
                f"There is no store number {arguments.store}.", f"The settings have {len(stores)}."
            )
        stores = [stores[arguments.store - 1]]
    keys, names = open_keys(settings.keys), names_of(settings)
    first: ProgramError | None = None
    for number, described in enumerate(stores):
        try:
            return work(open_store(described), keys, names)
        except (ServiceError, ChainError) as error:
            first = first or error
            if number + 1 < len(stores):
                LOG.warning("%s Trying the next store.", error)
    raise first or ProgramError("The settings name no store.")
