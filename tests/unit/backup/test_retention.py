# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Retention: what never goes, whatever the clock says; and that the collector deletes nothing else."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.backup import chain, gc
from ironspan.backup.catalogue import Catalogue, Segment, Snapshot, catalogue
from ironspan.backup.chain import Point
from ironspan.backup.manifest import Epoch, Verdict
from ironspan.backup.names import snapshot_id
from ironspan.backup.retention import Plan, key, plan
from ironspan.backup.store import Item
from ironspan.program.errors import ProgramError, RoleMissing, ServiceError
from tests.support import backup_log
from tests.support.backup_log import (
    CLUSTER,
    NAMES,
    PlainKeys,
    add_epoch,
    add_log,
    add_snapshot,
    add_verdict,
    revision,
)
from tests.support.memory_store import MemoryStore

HOUR, DAY = 3600, 86400
BEGIN = int(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp())


@dataclasses.dataclass(frozen=True)
class Keep:
    hourly: int = 2
    daily: int = 2
    weekly: int = 2
    monthly: int = 2


def taken(at: int, created: int, *, epoch: int = 1, verified: bool | None = None) -> Snapshot:
    verdict = None
    if verified is not None:
        verdict = Verdict(epoch, snapshot_id(at, created), verified, at, created, 1.0, "az-1")
    return backup_log.taken(at, created, epoch=epoch, verdict=verdict)


def stored(
    snapshots: collections.abc.Sequence[Snapshot],
    segments: collections.abc.Iterable[tuple[int, int]] = (),
    recoveries: collections.abc.Iterable[int] = (),
) -> Catalogue:
    epochs = sorted({1, *(one.epoch for one in snapshots), *(epoch for epoch, _ in segments)})
    return Catalogue(
        NAMES,
        tuple(Epoch(epoch, CLUSTER, BEGIN) for epoch in epochs),
        tuple(snapshots),
        tuple(
            Segment(Item(NAMES.log(epoch, first, number), 1, BEGIN, BEGIN), epoch, first, number)
            for number, (epoch, first) in enumerate(segments, 1)
        ),
        recoveries=tuple(Item(NAMES.recovery(unix), 1, unix, unix) for unix in recoveries),
    )


def gone(wanted: Plan, what: str) -> list[str]:
    return [removal.names[0] for removal in wanted.removals if removal.what == what]


def kept_hours(wanted: Plan) -> list[int]:
    return sorted((int(name.split("-")[1]) - BEGIN) // HOUR for name in wanted.kept)


def test_the_newest_of_each_period_stays() -> None:
    # 1 January 2026 was a Thursday: hour 96 begins a week, hour 744 a month.
    found = stored([taken(n, BEGIN + n * HOUR) for n in range(800)])
    wanted = plan(found, Keep(hourly=3, daily=2, weekly=3, monthly=2))
    assert kept_hours(wanted) == [599, 743, 767, 791, 797, 798, 799]
    assert wanted.kept[f"1/{snapshot_id(767, BEGIN + 767 * HOUR)}"] == ("weekly",)
    assert len(gone(wanted, "snapshot")) == 793


def test_why_something_stays_is_told() -> None:
    snapshots = [taken(1, BEGIN, verified=True), taken(2, BEGIN + 60), taken(3, BEGIN + 120, verified=False)]
    kept = plan(stored(snapshots), Keep(1, 1, 1, 1)).kept
    assert kept == {
        key(snapshots[2]): ("newest", "hourly", "daily", "weekly", "monthly"),
        key(snapshots[0]): ("last verified",),
    }


times = st.one_of(
    st.integers(0, 60 * DAY),
    # clocks that jumped
    st.sampled_from([-20 * 365 * DAY, 50 * 365 * DAY, 0]),
)
histories = st.lists(st.tuples(times, st.sampled_from([None, True, False]), st.booleans()), max_size=25)
counts = st.builds(Keep, st.integers(0, 5), st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))


def history(steps: list[tuple[int, bool | None, bool]]) -> list[Snapshot]:
    """Return snapshots in the order of their making: revisions grow, times are what clocks said."""
    epoch = 1
    snapshots = []
    for at, (offset, verified, restored) in enumerate(steps, 1):
        epoch += restored
        snapshots.append(taken(at * 10, BEGIN + offset, epoch=epoch, verified=verified))
    return snapshots


@given(histories, counts)
def test_what_is_needed_never_goes(steps: list[tuple[int, bool | None, bool]], keep: Keep) -> None:
    snapshots = history(steps)
    wanted = plan(stored(snapshots), keep)
    removed = {name for removal in wanted.removals for name in removal.names}
    if snapshots:
        assert snapshots[-1].data.name not in removed
    verified = [one for one in snapshots if one.verified]
    if verified:
        assert verified[-1].data.name not in removed
    assert len(wanted.kept) <= keep.hourly + keep.daily + keep.weekly + keep.monthly + 2
    for snapshot in snapshots:
        assert (key(snapshot) in wanted.kept) is (snapshot.data.name not in removed)
    for removal in wanted.removals:
        if removal.what == "snapshot":
            assert removal.names[0].endswith("/manifest.json")


@given(histories, counts)
def test_a_second_run_finds_nothing_more(steps: list[tuple[int, bool | None, bool]], keep: Keep) -> None:
    snapshots = history(steps)
    first = plan(stored(snapshots), keep)
    left = [one for one in snapshots if key(one) in first.kept]
    assert plan(stored(left), keep).kept.keys() == first.kept.keys()


@given(histories, counts, st.integers(1, 30))
def test_the_log_behind_what_is_promised_stays(
    steps: list[tuple[int, bool | None, bool]], keep: Keep, width: int
) -> None:
    snapshots = history(steps)
    segments = [
        (epoch, first)
        for epoch in sorted({one.epoch for one in snapshots})
        for first in range(1, len(snapshots) * 10 + 10, width)
    ]
    found = stored(snapshots, segments)
    wanted = plan(found, keep)
    removed = set(gone(wanted, "log"))
    for snapshot in snapshots:
        if not {"newest", "last verified", "hourly"} & set(wanted.kept.get(key(snapshot), ())):
            continue
        for segment in found.of(snapshot.epoch)[1]:
            if segment.first_revision + width > snapshot.revision + 1:
                assert segment.name not in removed
    for epoch in found.epochs:
        names = [segment.name for segment in found.of(epoch.epoch)[1]]
        # Only from the oldest on: what stays is one piece.
        assert removed.intersection(names) == set(names[: len(removed.intersection(names))])


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_collecting_after_every_snapshot_starves_no_longer_period(start: int, hours: int) -> None:
    keep = Keep(hourly=3, daily=3, weekly=2, monthly=2)
    snapshots: list[Snapshot] = []
    for number in range(1, 45 * 24 // hours):
        snapshots.append(taken(number, BEGIN + start + number * hours * HOUR))
        kept = plan(stored(snapshots), keep).kept
        snapshots = [one for one in snapshots if key(one) in kept]
    moments = [datetime.datetime.fromtimestamp(one.manifest.created, datetime.UTC) for one in snapshots]
    assert len({moment.date() for moment in moments}) >= 3
    assert len({moment.isocalendar()[:2] for moment in moments}) >= 2
    assert len({(moment.year, moment.month) for moment in moments}) == 2


def test_the_newest_epoch_without_a_snapshot_loses_nothing() -> None:
    found = stored([taken(5, BEGIN)], [(1, 1), (1, 4), (1, 9), (2, 20), (2, 30)])
    assert gone(plan(found, Keep()), "log") == [NAMES.log(1, 1, 1)]


def test_the_log_of_an_epoch_that_is_over_goes_with_its_hourly_snapshots() -> None:
    old = [taken(5, BEGIN)]
    new = [taken(100 + n, BEGIN + 40 * DAY + n * HOUR, epoch=2) for n in range(3)]
    wanted = plan(stored([*old, *new], [(1, 1), (1, 4), (2, 50), (2, 101)]), Keep(hourly=2))
    assert key(old[0]) in wanted.kept
    assert gone(wanted, "log") == [NAMES.log(1, 1, 1), NAMES.log(1, 4, 2), NAMES.log(2, 50, 3)]


def test_bundles_stay_that_a_kept_snapshot_needs() -> None:
    snapshots = [taken(1, BEGIN + 100), taken(2, BEGIN + 40 * DAY)]
    bundles = [BEGIN + n for n in (10, 90, 150, 160, 41 * DAY, 42 * DAY)]
    wanted = plan(stored(snapshots, recoveries=bundles), Keep())
    assert gone(wanted, "recovery") == [NAMES.recovery(BEGIN + 10)]
    only_new = plan(stored(snapshots[1:], recoveries=bundles), Keep())
    assert gone(only_new, "recovery") == [NAMES.recovery(BEGIN + n) for n in (10, 90, 150)]


def test_a_snapshot_that_is_being_written_stays() -> None:
    old, young = (Item(NAMES.snapshot_data(1, snapshot_id(n, 1)), 5, at, at) for n, at in ((8, 0), (9, DAY)))
    found = dataclasses.replace(stored([taken(1, DAY + 60)]), unfinished=(old, young))
    assert gone(plan(found, Keep()), "unfinished") == [old.name]
    alone = dataclasses.replace(stored([]), unfinished=(old,))
    assert not plan(alone, Keep()).removals


KEYS = PlainKeys()


def filled() -> MemoryStore:
    """Return a store with a snapshot every hour for five hours, a log, and drills."""
    store = MemoryStore(clock=lambda: float(BEGIN))
    add_epoch(store)
    for hour in range(5):
        at = (hour + 1) * 10
        identifier = add_snapshot(store, KEYS, at, unix=BEGIN + hour * HOUR)
        add_log(store, KEYS, [[revision(n) for n in range(at + 1, at + 11)]], after=at)
        add_verdict(store, identifier, verified=hour in (0, 2))
    return store


def test_the_collector_deletes_what_the_plan_says_and_the_rest_restores() -> None:
    store = filled()
    outcome = gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert not outcome.failed
    assert not outcome.protected
    found = catalogue(store, NAMES)
    assert [one.revision for one in found.snapshots] == [30, 40, 50]
    assert not found.damaged
    assert len(found.segments) == 3
    assert len(found.verdicts) == 3
    assert chain.choose(store, found, Point()).revision == 60
    assert chain.choose(store, found, Point("revision", 31)).snapshot.revision == 30
    with pytest.raises(ProgramError, match="before the first snapshot"):
        chain.choose(store, found, Point("revision", 29))
    again = gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert not again.deleted


def test_a_dry_run_deletes_nothing() -> None:
    store = filled()
    before = set(store.things)
    shown = gc.collect(store, NAMES, Keep(2, 1, 1, 1), only_show=True)
    assert set(store.things) == before
    assert shown.deleted == gc.collect(store, NAMES, Keep(2, 1, 1, 1)).deleted


def test_what_a_policy_protects_stays_whole_and_the_rest_goes() -> None:
    store = filled()
    identifier = snapshot_id(10, BEGIN)
    store.protected = {NAMES.snapshot_manifest(1, identifier), NAMES.log(1, 11, 1)}
    outcome = gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert set(outcome.protected) == store.protected
    assert not outcome.failed
    found = catalogue(store, NAMES)
    assert [one.revision for one in found.snapshots] == [10, 30, 40, 50]
    assert not found.damaged
    store.protected = set()
    gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert [one.revision for one in catalogue(store, NAMES).snapshots] == [30, 40, 50]


@pytest.mark.parametrize("survives", range(12))
def test_an_interrupted_run_leaves_nothing_half(survives: int) -> None:
    store = filled()
    store.faults = [""] * survives + ["before"] * 50
    outcome = gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert outcome.failed or survives >= len(outcome.deleted)
    store.faults = []
    found = catalogue(store, NAMES)
    assert not found.damaged
    assert chain.choose(store, found, Point()).revision == 60
    gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert [one.revision for one in catalogue(store, NAMES).snapshots] == [30, 40, 50]


def test_a_store_that_fails_is_left_alone() -> None:
    store = filled()
    store.faults = ["before"] * 50
    outcome = gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert store.requests["delete"] == gc.FAILURES
    assert "left alone" in outcome.failed[-1]


def test_an_identity_that_may_not_delete_is_told_apart_from_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> None:
        raise RoleMissing(f"{name}: no role allows deletion.")

    store = filled()
    monkeypatch.setattr(store, "delete", refuse)
    outcome = gc.collect(store, NAMES, Keep(2, 1, 1, 1))
    assert not outcome.protected
    assert len(outcome.failed) == 1
    assert "--identity" in outcome.failed[0]


def test_the_collector_takes_the_place_of_the_agent() -> None:
    azure = {"kind": "azure", "credential": {"kind": "managed_identity", "client_id": "agent"}}
    folder = {"kind": "file", "path": "/srv"}
    assert gc.as_collector(azure, "other") == {
        "kind": "azure",
        "credential": {"kind": "managed_identity", "client_id": "other"},
    }
    assert gc.as_collector(azure, None) == azure
    assert gc.as_collector(folder, "other") == folder
    assert azure["credential"]["client_id"] == "agent"  # type: ignore[index]


def test_damaged_objects_stay_for_people_to_look_at() -> None:
    store = filled()
    manifest = NAMES.snapshot_manifest(1, snapshot_id(10, BEGIN))
    store.things[manifest].data[20] ^= 1
    outcome = gc.collect(store, NAMES, Keep(1, 1, 1, 1))
    assert list(outcome.damaged) == [manifest]
    assert manifest in store.things
    assert NAMES.snapshot_data(1, snapshot_id(10, BEGIN)) in store.things


def test_the_text_names_what_went_wrong() -> None:
    outcome = gc.Outcome("memory", failed=[str(ServiceError("x: 503"))], damaged={"y": "its digest"})
    assert "failed: x: 503" in outcome.text
    assert "y: its digest" in outcome.text
