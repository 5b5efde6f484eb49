# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The two queues: bounded, in order, and what waits too long goes to disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.log import batch as batches
from ironspan.backup.log.batch import Batch, Cutter
from ironspan.backup.log.inbox import Closed, Inbox, cost
from ironspan.backup.log.outbox import Outbox
from ironspan.backup.log.spool import Spool
from ironspan.backup.records import Event, LeaseGrant, Progress, Record, Revision
from tests.support.clock import Clock

LIMIT = 1 << 20


def revision(number: int, size: int = 10, *, more: bool = False) -> Revision:
    return Revision(number, number, (Event(True, b"k", bytes(size), 1, number),), more=more)


def in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


# -- inbox ---------------------------------------------------------------------------------------------


def test_the_inbox_gives_in_order_what_fits() -> None:
    inbox = Inbox()
    inbox.put([revision(1), revision(2), revision(3)])
    assert inbox.bytes == 3 * cost(revision(1))
    assert inbox.take(2 * cost(revision(1))) == [revision(1), revision(2)]
    assert inbox.take(1) == [revision(3)]
    assert (inbox.take(1), inbox.bytes) == ([], 0)


def test_a_full_inbox_makes_the_reader_wait() -> None:
    inbox = Inbox(3 * cost(revision(1)))
    thread, raised = in_thread(lambda: inbox.put(revision(number) for number in range(1, 11)))
    taken: list[Record] = []
    while len(taken) < 10:
        inbox.wait(0.05)
        found = inbox.take(LIMIT)
        assert len(found) <= 3
        taken += found
    thread.join(60)
    assert (taken, raised) == ([revision(number) for number in range(1, 11)], [])


def test_a_record_larger_than_the_inbox_passes_alone() -> None:
    inbox = Inbox(1000)
    inbox.put([revision(1, 5000)])
    assert inbox.take(1) == [revision(1, 5000)]


def test_closing_ends_the_wait() -> None:
    inbox = Inbox(1)
    inbox.put([revision(1)])
    thread, raised = in_thread(lambda: inbox.put([revision(2)]))
    inbox.close()
    thread.join(60)
    assert [type(error) for error in raised] == [Closed]
    assert inbox.take(LIMIT) == [revision(1)]


# -- cutting -------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("rpgl"), st.integers(1, 3)), max_size=20), st.integers(1, 5))
def test_batches_join_to_what_was_cut(kinds: list[tuple[str, int]], chunk: int) -> None:
    records: list[Record] = []
    number = 10
    for kind, count in kinds:
        if kind == "r":
            records.append(revision(number))
            number += 1
        elif kind == "p":
            records += [revision(number, more=True)] * count + [revision(number)]
            number += 1
        elif kind == "g":
            records.append(Progress(number - 1, 1))
        else:
            records.append(LeaseGrant(count, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MAX_BYTES", 3 * cost(revision(1)))
        cutter = Cutter(10)
        cuts = [b for at in range(0, len(records), chunk) for b in cutter.cut(records[at : at + chunk])]
    assert [record for one in cuts for record in one.records] == records
    at, inside = 10, False
    for one in cuts:
        assert (one.first, one.begins_inside) == (at, inside)
        assert one.size == sum(map(cost, one.records)) <= 3 * cost(revision(1))
        part_at = [n for n, r in enumerate(one.records) if isinstance(r, Revision) and r.more]
        assert part_at in ([], [0])
        at, inside = one.last + 1, one.ends_inside
    assert (at, inside) == (number, False)


# -- outbox --------------------------------------------------------------------------------------------


def batch(number: int, size: int = 10) -> Batch:
    return next(iter(Cutter(number).cut([revision(number, size)])))


def firsts(found: list[Batch]) -> list[int]:
    return [one.first for one in found]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", LIMIT)


def test_what_is_taken_in_time_never_sees_the_disk(spool: Spool, clock: Clock) -> None:
    outbox = Outbox(spool, clock=clock)
    for number in range(1, 5):
        outbox.put(batch(number))
        clock.now += 1.9
        outbox.tick()
        assert firsts(outbox.head(LIMIT, 0)) == [number]
        outbox.done(1)
    assert not spool.folder.exists()
    assert len(outbox) == 0


def test_what_waits_too_long_goes_to_disk_in_order(spool: Spool, clock: Clock) -> None:
    outbox = Outbox(spool, clock=clock)
    for number in (1, 2):
        outbox.put(batch(number))
    held = outbox.head(LIMIT, 0)
    clock.now += 2.1
    outbox.tick()
    assert len(spool) == 2
    outbox.put(batch(3))
    assert firsts(outbox.head(LIMIT, 0)) == [1, 2, 3]
    outbox.done(len(held))
    assert firsts(outbox.head(LIMIT, 0)) == [3]
    assert outbox.spooled_bytes == 0


def test_the_end_of_a_run_spills_everything(spool: Spool, clock: Clock) -> None:
    outbox = Outbox(spool, clock=clock)
    outbox.put(batch(1))
    outbox.put(batch(2))
    outbox.spill()
    again = Spool(spool.folder, LIMIT)
    assert again.recover(0) == 3


def test_head_is_bounded(spool: Spool, clock: Clock) -> None:
    outbox = Outbox(spool, clock=clock)
    for number in (1, 2):
        outbox.put(batch(number))
    outbox.spill()
    for number in (3, 4):
        outbox.put(batch(number))
    size = batch(1).size
    assert firsts(outbox.head(1, 0)) == [1]
    assert firsts(outbox.head(2 * size, 0)) == [1, 2]
    assert firsts(outbox.head(3 * size, 0)) == [1, 2, 3]


def test_nothing_in_memory_overtakes_what_is_on_disk(spool: Spool, clock: Clock) -> None:
    outbox = Outbox(spool, clock=clock)
    outbox.put(batch(1))
    outbox.put(batch(2, 5000))
    outbox.spill()
    outbox.put(batch(3))
    assert firsts(outbox.head(3 * batch(1).size, 0)) == [1]


def test_a_spool_that_is_full_makes_the_flusher_wait_and_keeps_the_order(tmp_path: Path) -> None:
    clock = Clock()
    size = batch(1).size
    outbox = Outbox(Spool(tmp_path / "spool", 200), patience_s=0.0, max_bytes=3 * size, clock=clock)

    def fill() -> None:
        for number in range(1, 21):
            outbox.put(batch(number))

    thread, raised = in_thread(fill)
    found: list[int] = []
    while len(found) < 20:
        outbox.tick()
        heads = outbox.head(2 * size, 0.1)
        found += firsts(heads)
        outbox.done(len(heads))
    thread.join(60)
    assert (found, raised) == (list(range(1, 21)), [])


def test_a_full_spool_is_said_until_it_takes_again(tmp_path: Path) -> None:
    clock = Clock()
    outbox = Outbox(Spool(tmp_path / "spool", 200), clock=clock)
    for number in range(1, 10):
        outbox.put(batch(number))
    clock.now += 3
    outbox.tick()
    assert outbox.problem is not None
    outbox.done(9)
    outbox.put(batch(10))
    clock.now += 3
    outbox.tick()
    assert outbox.problem is None


def test_closing_ends_the_wait_for_room(tmp_path: Path) -> None:
    outbox = Outbox(Spool(tmp_path / "spool", 1), max_bytes=1)
    outbox.put(batch(1))
    thread, raised = in_thread(lambda: outbox.put(batch(2)))
    outbox.close()
    thread.join(60)
    assert [type(error) for error in raised] == [Closed]
    assert firsts(outbox.head(LIMIT, 0)) == [1]
