# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``gc``: deletes what retention lets go, with an identity that may."""

from __future__ import annotations

import argparse
import collections.abc
import dataclasses
import logging
import time
import typing as t

from ironspan.backup import recovery
from ironspan.backup.catalogue import Catalogue, catalogue, unsigned
from ironspan.backup.names import Names
from ironspan.backup.retention import Counts, Plan, Removal, plan
from ironspan.backup.store import Store
from ironspan.backup.written import known_segments
from ironspan.program.errors import Forbidden, NotThere, ProgramError, RoleMissing, ServiceError

if t.TYPE_CHECKING:
    from ironspan.backup.settings import Settings

log = logging.getLogger(__name__)
PROBE_SECONDS = 3600.0
"""Age of what check-store wrote from which on it is not in use."""
FAILURES = 3
"""Failures in a row after which a store is left alone until the next run."""


@dataclasses.dataclass
class Outcome:
    """What became of a store."""

    store: str
    only_shown: bool = False
    """Nothing was deleted; ``deleted`` is what would have been."""
    kept: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    deleted: list[str] = dataclasses.field(default_factory=list)
    bytes: int = 0
    protected: list[str] = dataclasses.field(default_factory=list)
    """What a retention policy or the identity's rights keep for now."""
    failed: list[str] = dataclasses.field(default_factory=list)
    damaged: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        """The outcome in a line or a few, for people."""
        done = "would go" if self.only_shown else "deleted"
        lines = [
            f"{self.store}: {len(self.kept)} snapshots stay, {len(self.deleted)} objects {done} "
            f"({self.bytes} bytes), {len(self.protected)} protected for now"
        ]
        lines += [f"  failed: {text}" for text in self.failed]
        lines += [f"  damaged, left alone: {name}: {why}" for name, why in sorted(self.damaged.items())]
        return "\n".join(lines)


def collect(
    store: Store, names: Names, counts: Counts, *, only_show: bool = False, with_unsigned: bool = False
) -> Outcome:
    """Delete what retention lets go from one store.

    What a policy protects is skipped and stays whole. An interrupted run leaves nothing that counts as a
    backup and is none: a snapshot's manifest goes first.

    Args:
        store: the store, opened with the identity that may delete.
        names: of the site.
        counts: how many periods of each kind keep their newest snapshot.
        only_show: delete nothing.
        with_unsigned: delete all that was written before objects were signed, too.

    Raises:
        ServiceError: the store cannot be read.
    """
    found = proven(store, catalogue(store, names))
    wanted: Plan = plan(found, counts)
    outcome = Outcome(store.name, only_show, wanted.kept, damaged=dict(found.damaged))
    removals = [*wanted.removals, *_probes(store, names)]
    if with_unsigned:
        removals += _unsigned(store, names)
    failures = 0
    for removal in removals:
        if only_show:
            outcome.deleted += removal.names
            outcome.bytes += removal.size
            continue
        try:
            _remove(store, removal, outcome)
            failures = 0
        except RoleMissing as error:
            outcome.failed.append(f"{error} Run this with the collector's identity (--identity).")
            break
        except ServiceError as error:
            outcome.failed.append(str(error))
            failures += 1
            if failures == FAILURES:
                outcome.failed.append(f"{store.name} is left alone until the next run.")
                break
    return outcome


def proven(store: Store, found: Catalogue) -> Catalogue:
    """Return what of a catalogue the site wrote, so that no name decides what is old.

    Args:
        store: where it was read.
        found: the catalogue.
    """
    found = known_segments(store, found)
    ours = tuple(
        item for item in found.recoveries if recovery.read_signed(store, item, found.names.proof) is not None
    )
    doubtful = {
        parsed.epoch for name in found.damaged if (parsed := found.names.parse_snapshot(name)) is not None
    }
    sure = {snapshot.epoch for snapshot in found.snapshots} | (
        {epoch.epoch for epoch in found.epochs} - doubtful
    )
    # Where no manifest can be read, for want of a key perhaps, nobody knows what the log is good for.
    segments = tuple(segment for segment in found.segments if segment.epoch in sure)
    return dataclasses.replace(found, segments=segments, recoveries=ours)


def _unsigned(store: Store, names: Names) -> collections.abc.Iterator[Removal]:
    found = unsigned(store, names)
    if not catalogue(store, names).snapshots:
        raise ProgramError(
            f"{store.name} has no signed snapshot: what is unsigned is all there is.",
            "Let the agent take a snapshot first.",
        )
    for snapshot in found.snapshots:
        manifest = names.snapshot_manifest(snapshot.epoch, snapshot.id)
        yield Removal("unsigned", (manifest, snapshot.data.name), snapshot.data.size)
    for segment in found.segments:
        yield Removal("unsigned", (segment.name,), segment.item.size)
    for item in found.verdicts:
        if (parsed := names.parse_verdict(item.name)) and parsed.epoch in {one.epoch for one in found.epochs}:
            yield Removal("unsigned", (item.name,), item.size)


def _probes(store: Store, names: Names) -> collections.abc.Iterator[Removal]:
    for item in store.list(names.probes):
        if item.modified < time.time() - PROBE_SECONDS:
            yield Removal("probe", (item.name,), item.size)


def _remove(store: Store, removal: Removal, outcome: Outcome) -> None:
    for name in removal.names:
        try:
            store.delete(name)
        except NotThere:
            continue
        except RoleMissing:
            raise
        except Forbidden as error:
            log.info("%s: %s", name, error)
            outcome.protected.append(name)
            return
        outcome.deleted.append(name)
    outcome.bytes += removal.size


def add_commands(subparsers: t.Any) -> None:
    """Add ``gc``."""
    command = subparsers.add_parser(
        "gc",
        help="delete what retention lets go",
        description="Delete what retention lets go from every store. The agent's own identity may not; this "
        "runs on a host that has the collector's, with a copy of the agents' settings.",
    )
    command.add_argument("--identity", metavar="ID", help="client id of the identity that may delete")
    command.add_argument(
        "--unsigned", action="store_true", help="and all that was written before backups were signed"
    )
    command.add_argument("--dry-run", action="store_true", help="show what would go, delete nothing")
    command.set_defaults(func=_gc)


def as_collector(
    entry: collections.abc.Mapping[str, t.Any], identity: str | None
) -> collections.abc.Mapping[str, t.Any]:
    """Return a store's settings with the collector's identity in the place of the agent's.

    Args:
        entry: of ``stores`` in the settings.
        identity: its client id, or None for what the settings say. A folder has no identities.
    """
    if identity is None or "credential" not in entry:
        return entry
    return {**entry, "credential": {**entry["credential"], "client_id": identity}}


def _gc(settings: Settings, arguments: argparse.Namespace) -> int:
    from ironspan.backup.stores import names_of, open_store
    from ironspan.program.command import FAILED, answer

    names = names_of(settings)
    outcomes = []
    for entry in settings.stores:
        try:
            store = open_store(as_collector(entry, arguments.identity))
            outcomes.append(
                collect(
                    store,
                    names,
                    settings.retention,
                    only_show=arguments.dry_run,
                    with_unsigned=arguments.unsigned,
                )
            )
        except ProgramError as error:
            outcomes.append(Outcome(str(entry.get("path") or entry.get("account_url")), failed=[str(error)]))
    answer(
        arguments,
        {"stores": [{**dataclasses.asdict(outcome), "text": outcome.text} for outcome in outcomes]},
        "\n".join(outcome.text for outcome in outcomes),
    )
    return FAILED if any(outcome.failed for outcome in outcomes) else 0
