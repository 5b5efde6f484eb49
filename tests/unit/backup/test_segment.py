# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The log's writer and reader: order, fencing, answers that were lost, damage of every kind."""

from __future__ import annotations

import collections.abc
import dataclasses
import itertools
import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup import segment
from ironspan.backup.errors import ChainError
from ironspan.backup.frame import read_frames
from ironspan.backup.log_reader import SegmentReader, read_log
from ironspan.backup.records import Coalesced, Event, LeaseGrant, Progress, Record, Revision
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.takeover import LogEnd, take_over
from ironspan.program.errors import KeyMissing, LeaseLost, ProgramError, ServiceError
from tests.support.backup_log import NAMES, PlainKeys, add_log, file_keys, revision
from tests.support.memory_store import MemoryStore

KEYS = PlainKeys()
FIRST = LogEnd(0, "", "", 0, 0)


def begin(store: MemoryStore, after: int = 10) -> SegmentWriter:
    return SegmentWriter.begin(store, KEYS, NAMES, 1, take_over(store, NAMES, 1, "test"), after)


def read(store: MemoryStore, *names: str, after: int = 10) -> list[Record]:
    return list(read_log(store, KEYS, [(name, "") for name in names], after))


def revisions(records: collections.abc.Iterable[Record]) -> list[int]:
    return [record.revision for record in records if isinstance(record, Revision | Coalesced)]


def test_what_is_appended_is_read() -> None:
    store = MemoryStore()
    writer = begin(store)
    first: list[Record] = [LeaseGrant(7, 60), revision(11), Coalesced(12, 5, b"/registry/leases/a")]
    assert writer.append(first) == 12
    assert writer.append([Progress(12, 6)]) == 12
    assert writer.append([]) == 12
    assert read(store, writer.name) == [*first, Progress(12, 6)]
    assert writer.frames == 2
    assert writer.size == store.size(writer.name)


def test_the_store_sees_nothing_plain() -> None:
    store = MemoryStore()
    writer = begin(store)
    writer.append([Revision(11, 5, (Event(True, b"/registry/secrets/x", b"TOPSECRET" * 9, 11, 1),))])
    raw = bytes(store.things[writer.name].data)
    assert b"TOPSECRET" not in raw
    assert b"secrets" not in raw


@pytest.mark.parametrize("missing", [revision(13), Coalesced(13, 5, b"l"), Progress(12, 5)])
def test_a_missing_revision_is_refused_and_nothing_written(missing: Record) -> None:
    store = MemoryStore()
    writer = begin(store)
    with pytest.raises(ChainError) as caught:
        writer.append([revision(11), missing])
    assert caught.value.gap == (12, 12)
    assert store.size(writer.name) == 0
    assert writer.append([revision(11), revision(12)]) == 12


def test_a_revision_that_is_in_the_log_is_refused() -> None:
    writer = begin(MemoryStore())
    writer.append([revision(11)])
    with pytest.raises(ProgramError, match="in the log already"):
        writer.append([revision(11)])


def test_a_revision_may_come_in_parts() -> None:
    store = MemoryStore()
    writer = begin(store)
    a, b, c = (Event(False, key) for key in (b"a", b"b", b"c"))
    assert writer.append([Revision(11, 5, (a,), more=True)]) == 10
    assert writer.append([Revision(11, 5, (b,), more=True), Revision(11, 5, (c,))]) == 11
    assert read(store, writer.name) == [Revision(11, 5, (a, b, c))]


def test_a_large_revision_is_split_over_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "PLAIN_MAX", 10_000)
    store = MemoryStore()
    writer = begin(store)
    large = Revision(11, 5, tuple(Event(False, b"/registry/pods/%06d" % n) for n in range(1000)))
    assert writer.append([LeaseGrant(1, 2), large, revision(12)]) == 12
    assert writer.frames > 8
    assert read(store, writer.name) == [LeaseGrant(1, 2), large, revision(12)]


def test_the_largest_batch_fits_an_append_though_it_does_not_compress() -> None:
    store = MemoryStore()
    writer = begin(store)
    size = 1_048_576
    batch = [Revision(11 + n, 5, (Event(True, b"k", os.urandom(size), 11 + n, 1),)) for n in range(5)]
    assert writer.append(batch) == 15
    assert writer.frames == 2
    assert read(store, writer.name) == batch


def test_a_value_that_no_append_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "PLAIN_MAX", 10_000)
    writer = begin(MemoryStore())
    with pytest.raises(ProgramError, match="max-request-bytes"):
        writer.append([Revision(11, 5, (Event(True, b"k", bytes(10_000), 11, 1),))])
    assert writer.append([revision(11)]) == 11


def test_a_revision_that_a_lost_writer_left_in_parts_is_written_again() -> None:
    store = MemoryStore()
    lost = begin(store)
    lost.append([revision(11), Revision(12, 5, (Event(False, b"a"),), more=True)])
    end = take_over(store, NAMES, 1, "az-2")
    assert end.revision == 11
    writer = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
    whole = Revision(12, 5, (Event(False, b"a"), Event(False, b"b")))
    writer.append([whole])
    assert read(store, lost.name, writer.name) == [revision(11), whole]


@pytest.mark.parametrize("fault", ["before", "after"])
def test_an_append_without_answer_lands_once(fault: str) -> None:
    store = MemoryStore()
    writer = begin(store)
    writer.append([revision(11)])
    store.faults = [fault, fault, "before"]
    with pytest.raises(ServiceError) as caught:
        writer.append([revision(12)])
    assert caught.value.retryable
    assert writer.durable == 11
    attempts = 0
    while writer.durable < 12:
        attempts += 1
        try:
            writer.flush()
        except ServiceError as error:
            assert error.retryable
    assert attempts <= 3
    store.faults = []
    writer.append([revision(13)])
    assert revisions(read(store, writer.name)) == [11, 12, 13]


def test_records_are_kept_though_the_ones_before_them_could_not_be_sent() -> None:
    store = MemoryStore()
    writer = begin(store)
    store.faults = ["before", "after", "before"]
    for number in (11, 12):
        with pytest.raises(ServiceError):
            writer.append([revision(number)])
    with pytest.raises(ServiceError):
        writer.flush()
    writer.flush()
    assert writer.durable == 12
    assert revisions(read(store, writer.name)) == [11, 12]


@given(st.lists(st.sampled_from(["", "before", "after"]), max_size=30), st.integers(1, 8))
def test_whatever_answers_are_lost_the_log_is_whole(faults: list[str], count: int) -> None:
    store = MemoryStore()
    writer = begin(store)
    store.faults = list(faults)
    for number in range(11, 11 + count):
        try:
            writer.append([revision(number)])
        except ServiceError as error:
            assert error.retryable
            while writer.durable < number:
                try:
                    writer.flush()
                except ServiceError as again:
                    assert again.retryable
    assert revisions(read(store, writer.name)) == list(range(11, 11 + count))


def test_a_store_that_lies_is_found_out() -> None:
    store = MemoryStore()
    writer = begin(store)
    store.faults = ["lie"]
    writer.append([revision(11)])
    with pytest.raises(ChainError, match="acknowledged") as caught:
        writer.append([revision(12)])
    assert caught.value.altered == writer.name


def test_a_writer_that_was_taken_over_lands_nothing_more() -> None:
    store = MemoryStore()
    old = begin(store)
    old.append([revision(11)])
    end = take_over(store, NAMES, 1, "az-2")
    assert (end.revision, end.number, end.name) == (11, 1, old.name)
    new = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
    before = bytes(store.things[old.name].data)
    with pytest.raises(LeaseLost, match="taken over"):
        old.append([revision(12)])
    assert store.things[old.name].data == before
    new.append([revision(12)])
    assert revisions(read(store, old.name, new.name)) == [11, 12]


def test_a_writer_that_was_taken_over_before_it_wrote_lands_nothing() -> None:
    store = MemoryStore()
    old = begin(store)
    end = take_over(store, NAMES, 1, "az-2")
    assert end == LogEnd(1, "", "", 0, 0)
    with pytest.raises(LeaseLost):
        old.append([revision(11)])
    new = SegmentWriter.begin(store, KEYS, NAMES, 1, end, 10)
    new.append([revision(11)])
    assert revisions(read(store, new.name)) == [11]


def test_taking_over_again_changes_nothing() -> None:
    store = MemoryStore()
    add_log(store, KEYS, [[revision(11)]], after=10, sealed=False)
    first = take_over(store, NAMES, 1, "az-2")
    before = {name: bytes(thing.data) for name, thing in store.things.items()}
    assert take_over(store, NAMES, 1, "az-3") == first
    assert {name: bytes(thing.data) for name, thing in store.things.items()} == before


def test_two_that_begin_at_once_do_not_both_write() -> None:
    store = MemoryStore()
    end = take_over(store, NAMES, 1, "az-1")
    SegmentWriter.begin(store, KEYS, NAMES, 1, end, 10)
    for after in (10, 20):
        with pytest.raises(LeaseLost, match="another writer"):
            SegmentWriter.begin(store, KEYS, NAMES, 1, end, after)


def test_a_log_does_not_go_back() -> None:
    store = MemoryStore()
    add_log(store, KEYS, [[revision(11)]], after=10)
    with pytest.raises(ProgramError, match="at revision 11 already"):
        begin(store, 10)


def test_a_writer_hands_its_end_to_the_next() -> None:
    store = MemoryStore()
    first = begin(store)
    first.append([revision(11)])
    end = first.seal("az-1")
    assert end == take_over(store, NAMES, 1, "az-2")
    with pytest.raises(ProgramError, match="is sealed"):
        first.append([revision(12)])
    second = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
    unused = second.seal("az-1")
    assert unused == end._replace(number=2)
    third = SegmentWriter.begin(store, KEYS, NAMES, 1, unused)
    third.append([revision(12)])
    headers = [next(read_frames(store, name)).header for name in (first.name, third.name)]
    assert headers[1].before == first.name
    assert headers[1].previous == end.digest
    assert revisions(read(store, first.name, third.name)) == [11, 12]


def late(number: int) -> Revision:
    return dataclasses.replace(revision(number), behind=True)


@pytest.mark.parametrize(
    ("records", "behind"),
    [
        ([late(11), revision(12)], False),
        ([revision(11), late(12)], True),
        ([late(11), Progress(11, 5)], False),
        ([late(11), dataclasses.replace(revision(12), more=True)], True),
    ],
)
@pytest.mark.parametrize("handed", [True, False])
def test_whether_the_log_was_catching_up_is_known_to_the_next(
    records: list[Record], behind: bool, handed: bool
) -> None:
    store = MemoryStore()
    writer = begin(store)
    writer.append(records)
    end = writer.seal("a") if handed else take_over(store, NAMES, 1, "a")
    assert end.behind is behind
    following = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
    assert following.seal("b").behind is behind
    assert take_over(store, NAMES, 1, "c").behind is behind


def test_a_seal_without_answer_is_sent_again() -> None:
    store = MemoryStore()
    writer = begin(store)
    writer.append([revision(11)])
    store.faults = ["after"]
    with pytest.raises(ServiceError):
        writer.seal()
    end = writer.seal()
    assert end == take_over(store, NAMES, 1, "az-2")


def test_a_seal_that_was_acknowledged_and_is_not_there_is_found() -> None:
    store = MemoryStore()
    writer = begin(store)
    writer.append([revision(11)])
    store.faults = ["lie"]
    with pytest.raises(ChainError, match="acknowledged"):
        writer.seal()
    # The next segment would go on from a frame that nobody has.
    store.faults = ["lie"]
    with pytest.raises(ServiceError, match="does not have it") as caught:
        take_over(store, NAMES, 1, "az-2")
    assert caught.value.retryable
    end = take_over(store, NAMES, 1, "az-2")
    SegmentWriter.begin(store, KEYS, NAMES, 1, end).append([revision(12)])
    assert revisions(read(store, *sorted(name for name in store.things if "/log/" in name))) == [11, 12]


def test_a_segment_is_full_by_size_blocks_or_age_but_not_within_a_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit, value in (("SEGMENT_BYTES", 300), ("BLOCKS_MAX", 3), ("SEGMENT_SECONDS", 0)):
        with monkeypatch.context() as patched:
            patched.setattr(segment, limit, value)
            writer = begin(MemoryStore())
            writer.append([Revision(11, 5, (Event(False, b"a"),), more=True)])
            assert not writer.full
            writer.append([Revision(11, 5, (Event(False, b"b"),))])
            assert writer.full
    assert not begin(MemoryStore()).full


def test_a_torn_end_is_not_read_and_its_revisions_are_written_again() -> None:
    store = MemoryStore()
    name = add_log(store, KEYS, [[revision(11)], [revision(12)]], after=10, sealed=False)
    del store.things[name].data[-5:]
    assert revisions(read(store, name)) == [11]
    end = take_over(store, NAMES, 1, "az-2")
    assert end.revision == 11
    writer = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
    writer.append([revision(12), revision(13)])
    segments = [(name, end.digest), (writer.name, "")]
    assert revisions(read_log(store, KEYS, segments, 10)) == [11, 12, 13]


def frames(store: MemoryStore, name: str) -> list[bytes]:
    data = bytes(store.things[name].data)
    ends = [0, *(frame.end for frame in read_frames(store, name))]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def three_frames() -> tuple[MemoryStore, str]:
    store = MemoryStore()
    return store, add_log(store, KEYS, [[revision(n)] for n in (11, 12, 13)], after=10)


@given(st.data())
def test_any_flipped_bit_is_found_and_named(data: st.DataObject) -> None:
    store, name = three_frames()
    whole = store.things[name].data
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    # A length that says more than there is reads as an end that was cut off: then the end is missed.
    digest = take_over(three_frames()[0], NAMES, 1, "x").digest
    with pytest.raises(ChainError) as caught:
        list(SegmentReader(store, KEYS, name).frames(digest))
    assert caught.value.altered == name
    assert name in str(caught.value)


@given(st.data())
def test_any_cut_is_found_where_the_end_is_known(data: st.DataObject) -> None:
    store, name = three_frames()
    digest = take_over(store, NAMES, 1, "x").digest
    del store.things[name].data[data.draw(st.integers(0, store.size(name) - 1)) :]
    with pytest.raises(ChainError, match="ends behind revision") as caught:
        list(SegmentReader(store, KEYS, name).frames(digest))
    assert caught.value.altered == name


@given(st.permutations(range(4)))
def test_frames_in_another_order_are_refused(order: list[int]) -> None:
    store, name = three_frames()
    parts = frames(store, name)
    store.things[name].data[:] = b"".join(parts[index] for index in order)
    if order == [0, 1, 2, 3]:
        assert revisions(read(store, name)) == [11, 12, 13]
        return
    with pytest.raises(ChainError) as caught:
        read(store, name)
    assert caught.value.altered == name


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_frame_is_found(missing: int) -> None:
    store, name = three_frames()
    parts = frames(store, name)
    store.things[name].data[:] = b"".join(parts[:missing] + parts[missing + 1 :])
    with pytest.raises(ChainError) as caught:
        read(store, name)
    assert caught.value.altered == name


def test_a_frame_of_another_log_is_refused() -> None:
    store, name = three_frames()
    other, _ = three_frames()
    mine, theirs = frames(store, name), frames(other, name)
    store.things[name].data[:] = b"".join([mine[0], theirs[1], *mine[2:]])
    with pytest.raises(ChainError):
        read(store, name)


def test_a_segment_under_another_name_is_refused() -> None:
    store, name = three_frames()
    other = NAMES.log(1, 11, 2)
    store.things[other] = store.things[name]
    with pytest.raises(ChainError) as caught:
        read(store, other)
    assert caught.value.altered == other


def test_without_the_key_nothing_is_read(tmp_path: pathlib.Path) -> None:
    keys = file_keys(tmp_path)
    store = MemoryStore()
    name = add_log(store, keys, [[revision(11)]], after=10)
    assert revisions(read_log(store, keys, [(name, "")], 10)) == [11]
    (tmp_path / "1.key").unlink()
    with pytest.raises(KeyMissing, match="version '1'"):
        list(read_log(store, keys, [(name, "")], 10))


def test_a_segment_that_is_missing_between_is_a_gap() -> None:
    store = MemoryStore()
    names = [add_log(store, KEYS, [[revision(n)]], after=n - 1) for n in (11, 12, 13)]
    assert revisions(read(store, *names, after=10)) == [11, 12, 13]
    with pytest.raises(ChainError) as caught:
        read(store, names[0], names[2], after=10)
    assert caught.value.gap == (12, 12)


def test_reading_ends_at_the_point_though_what_follows_is_damaged() -> None:
    store, name = three_frames()
    parts = frames(store, name)
    store.things[name].data[:] = parts[0] + parts[1] + bytes(len(parts[2])) + parts[3]
    assert revisions(read_log(store, KEYS, [(name, "")], 10, until=12)) == [11, 12]
    with pytest.raises(ChainError):
        list(read_log(store, KEYS, [(name, "")], 10, until=13))


def test_reading_ends_at_a_time_and_what_a_clock_repeats_is_later() -> None:
    store = MemoryStore()
    times = [(11, 100), (12, 200), (13, 900), (14, 150), (15, 300)]
    batch = [Revision(number, time, (Event(False, b"a"),)) for number, time in times]
    name = add_log(store, KEYS, [batch], after=10)
    for until, expected in ((99, []), (100, [11]), (250, [11, 12]), (900, [11, 12, 13, 14, 15])):
        assert revisions(read_log(store, KEYS, [(name, "")], 10, until_ms=until)) == expected
