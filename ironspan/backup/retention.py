# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What stays in a store and what may go: some snapshots of every hour, day, week and month, and their log.

No clock is asked. Snapshots count by the periods in which there are any, so neither a clock that jumped nor
an agent that was down for a month makes what is left go.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import itertools
import typing as t

from ironspan.backup.catalogue import Catalogue, Segment, Snapshot
from ironspan.backup.store import Item

UNFINISHED_SECONDS = 24 * 3600
"""How much older than the newest object an unfinished snapshot is that nobody writes any more."""


class Counts(t.Protocol):
    """How many periods of each kind keep their newest snapshot (settings.Retention)."""

    @property
    def hourly(self) -> int:
        """Hours."""

    @property
    def daily(self) -> int:
        """Days."""

    @property
    def weekly(self) -> int:
        """Weeks, from Monday."""

    @property
    def monthly(self) -> int:
        """Months."""


@dataclasses.dataclass(frozen=True, slots=True)
class Removal:
    """Objects that go together, in this order: as long as the first is there, they count."""

    what: str
    names: tuple[str, ...]
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What stays, and why; and what goes."""

    kept: dict[str, tuple[str, ...]]
    """Reasons by snapshot, named ``<epoch>/<identifier>``."""
    removals: tuple[Removal, ...]


def plan(found: Catalogue, counts: Counts) -> Plan:
    """Return what stays and what goes. All times are in UTC.

    What never goes: the newest snapshot, the last one that a drill restored and the log behind it, whatever
    was found damaged, the records of epochs, and all of an epoch that is the newest and has no snapshot.
    The log stays from the oldest snapshot on that is kept for its hour, so any point since then can be
    restored; what is kept for longer can be restored as it was taken.

    Args:
        found: what the store holds.
        counts: how many periods of each kind keep their newest snapshot.
    """
    ordered = sorted(found.snapshots, key=lambda one: (one.epoch, one.revision, one.id))
    kept = _kept(ordered, counts)
    removals = [_snapshot(found, snapshot) for snapshot in ordered if key(snapshot) not in kept]
    for epoch in found.epochs:
        removals += [
            Removal("log", (segment.name,), segment.item.size)
            for segment in _segments(found, epoch.epoch, kept)
        ]
    removals += [Removal("unfinished", (item.name,), item.size) for item in _unfinished(found)]
    staying = [snapshot for snapshot in ordered if key(snapshot) in kept]
    removals += [Removal("recovery", (item.name,), item.size) for item in _recoveries(found, staying)]
    return Plan(kept, tuple(removals))


def key(snapshot: Snapshot) -> str:
    """Return what ``Plan.kept`` calls a snapshot."""
    return f"{snapshot.epoch}/{snapshot.id}"


def _kept(ordered: collections.abc.Sequence[Snapshot], counts: Counts) -> dict[str, tuple[str, ...]]:
    reasons: dict[str, tuple[str, ...]] = {}

    def keep(snapshot: Snapshot, why: str) -> None:
        reasons[key(snapshot)] = (*reasons.get(key(snapshot), ()), why)

    if ordered:
        keep(ordered[-1], "newest")
    verified = [snapshot for snapshot in ordered if snapshot.verified]
    if verified:
        keep(verified[-1], "last verified")
    for why, count, period in (
        ("hourly", counts.hourly, _hour),
        ("daily", counts.daily, _day),
        ("weekly", counts.weekly, _week),
        ("monthly", counts.monthly, _month),
    ):
        newest = {period(_moment(snapshot)): snapshot for snapshot in ordered}
        for moment in sorted(newest, reverse=True)[:count]:
            keep(newest[moment], why)
    return reasons


def _moment(snapshot: Snapshot) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(snapshot.manifest.created, datetime.UTC)


def _hour(moment: datetime.datetime) -> tuple[int, ...]:
    return (moment.year, moment.month, moment.day, moment.hour)


def _day(moment: datetime.datetime) -> tuple[int, ...]:
    return (moment.year, moment.month, moment.day)


def _week(moment: datetime.datetime) -> tuple[int, ...]:
    return tuple(moment.isocalendar()[:2])


def _month(moment: datetime.datetime) -> tuple[int, ...]:
    return (moment.year, moment.month)


def _snapshot(found: Catalogue, snapshot: Snapshot) -> Removal:
    names = found.names
    prefix = names.verdicts(snapshot.epoch, snapshot.id)
    verdicts = tuple(item.name for item in found.verdicts if item.name.startswith(prefix))
    return Removal(
        "snapshot",
        (names.snapshot_manifest(snapshot.epoch, snapshot.id), snapshot.data.name, *verdicts),
        snapshot.data.size,
    )


def _segments(
    found: Catalogue, epoch: int, kept: collections.abc.Mapping[str, tuple[str, ...]]
) -> collections.abc.Iterator[Segment]:
    """Yield the segments from the oldest on that lead to no point which is still promised."""
    snapshots, segments = found.of(epoch)
    floors = [
        snapshot.revision
        for snapshot in snapshots
        if {"newest", "last verified", "hourly"} & set(kept.get(key(snapshot), ()))
    ]
    if not floors:
        if epoch != found.epochs[-1].epoch:
            yield from segments
        return
    for segment, following in itertools.pairwise(segments):
        if following.first_revision > min(floors) + 1:
            return
        yield segment


def _unfinished(found: Catalogue) -> collections.abc.Iterator[Item]:
    """Yield what nobody writes any more, by the store's own clock."""
    newest = max((item.modified for item in (*_items(found), *found.unfinished)), default=0.0)
    for item in found.unfinished:
        if newest - item.modified > UNFINISHED_SECONDS:
            yield item


def _items(found: Catalogue) -> collections.abc.Iterator[Item]:
    yield from (snapshot.data for snapshot in found.snapshots)
    yield from (segment.item for segment in found.segments)


def _recoveries(
    found: Catalogue, staying: collections.abc.Iterable[Snapshot]
) -> collections.abc.Iterator[Item]:
    """Yield the bundles that no snapshot needs: it needs the one before it and the one after it."""
    bundles = sorted(
        (unix, item) for item in found.recoveries if (unix := found.names.parse_recovery(item.name))
    )
    needed = {bundles[-1][0]} if bundles else set()
    for snapshot in staying:
        created = snapshot.manifest.created
        needed |= {max((unix for unix, _ in bundles if unix <= created), default=0)}
        needed |= {min((unix for unix, _ in bundles if unix > created), default=0)}
    yield from (item for unix, item in bundles if unix not in needed)
