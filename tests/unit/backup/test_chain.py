# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a store holds, what leads to a point, and every reason why nothing does."""

from __future__ import annotations

import itertools
import pathlib
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup import segment
from ironspan.backup.agent.guard import kept_in
from ironspan.backup.catalogue import catalogue
from ironspan.backup.chain import Chain, Point, choose, last_seen, moment_text
from ironspan.backup.errors import ChainError
from ironspan.backup.log_reader import read_log
from ironspan.backup.manifest import Restored
from ironspan.backup.names import snapshot_id
from ironspan.backup.records import Coalesced, Progress, Revision
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.snapshot_reader import read_snapshot
from ironspan.backup.takeover import take_over
from ironspan.program.errors import KeyMissing, ProgramError
from tests.support.backup_log import (
    NAMES,
    START_MS,
    PlainKeys,
    add_epoch,
    add_log,
    add_snapshot,
    add_verdict,
    file_keys,
    revision,
)
from tests.support.memory_store import MemoryStore

KEYS = PlainKeys()


def chosen(store: MemoryStore, point: str = "latest") -> Chain:
    return choose(store, catalogue(store, NAMES), Point.parse(point), KEYS)


def replayed(store: MemoryStore, chain: Chain) -> list[int]:
    """Return the revisions that the chain's log leads through."""
    until = chain.point.value if chain.point.kind == "revision" else None
    until_ms = chain.point.value if chain.point.kind == "time" else None
    segments = [(link.segment.name, link.digest) for link in chain.links]
    log = read_log(store, KEYS, segments, chain.snapshot.revision, until=until, until_ms=until_ms)
    return [record.revision for record in log if isinstance(record, Revision | Coalesced)]


def at(number: int) -> str:
    """Return the point in time of a revision in these tests."""
    return f"time:{moment_text(START_MS + number * 1000)}"


@pytest.fixture
def store() -> MemoryStore:
    """Snapshots at 10 and 40; the log from 11 to 60 in five segments of ten revisions, the last one open."""
    store = MemoryStore()
    add_epoch(store)
    add_snapshot(store, KEYS, 10)
    for first in range(11, 61, 10):
        batches = [[revision(n) for n in range(first + part, first + part + 5)] for part in (0, 5)]
        add_log(store, KEYS, batches, after=first - 1, sealed=first != 51)
        if first == 31:
            add_snapshot(store, KEYS, 40)
    return store


def segment_at(store: MemoryStore, first: int) -> str:
    return next(name for name in store.things if f"{first:020d}-" in name and name.endswith(".log"))


def test_small_objects_are_read_several_at_a_time(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    read = store.read

    def waiting(name: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if name.endswith("manifest.json"):
            both.wait()
        return read(name, offset, length)

    monkeypatch.setattr(store, "read", waiting)
    assert [one.revision for one in catalogue(store, NAMES).snapshots] == [10, 40]


def test_latest(store: MemoryStore) -> None:
    chain = chosen(store)
    assert chain.snapshot.revision == 40
    assert chain.revision == 60
    assert chain.time_ms == START_MS + 60_000
    assert replayed(store, chain) == list(range(41, 61))


@pytest.mark.parametrize("goes_on", [0, 5])
@pytest.mark.parametrize("snapshot", [12, 14])
@pytest.mark.parametrize(
    ("first", "second", "end"),
    [
        (range(11, 21), range(13, 13), 20),
        (range(11, 21), range(13, 16), 20),
        (range(11, 14), range(13, 21), 20),
        (range(11, 11), range(13, 21), 20),
    ],
)
def test_of_writers_that_began_at_once_the_one_counts_that_the_next_goes_on_from(
    monkeypatch: pytest.MonkeyPatch, first: range, second: range, end: int, snapshot: int, goes_on: int
) -> None:
    """Two agents each believed to have the lease, and old lists of names did not show the other's segment."""
    monkeypatch.setattr(segment, "in_the_way", lambda *_: False)
    store = MemoryStore()
    add_epoch(store)
    add_snapshot(store, KEYS, snapshot)
    nothing = take_over(store, NAMES, 1, "test")
    writers = [SegmentWriter.begin(store, KEYS, NAMES, 1, nothing, after) for after in (10, 12)]
    for writer, numbers in zip(writers, (first, second), strict=True):
        writer.append([revision(number) for number in numbers])
    assert chosen(store).revision == end
    taken = take_over(store, NAMES, 1, "next")
    assert taken.revision == end
    following = SegmentWriter.begin(store, KEYS, NAMES, 1, taken)
    following.append([revision(number) for number in range(end + 1, end + 1 + goes_on)])
    chain = chosen(store)
    assert chain.revision == end + goes_on
    assert replayed(store, chain) == list(range(snapshot + 1, end + 1 + goes_on))
    assert last_seen(store, catalogue(store, NAMES)) == end + goes_on
    assert kept_in(store, NAMES, add_epoch(MemoryStore())).revision == end + goes_on


@pytest.mark.parametrize(
    ("wanted", "snapshot"), [(10, 10), (11, 10), (20, 10), (39, 10), (40, 40), (41, 40), (60, 40)]
)
def test_a_revision(store: MemoryStore, wanted: int, snapshot: int) -> None:
    chain = chosen(store, f"revision:{wanted}")
    assert chain.snapshot.revision == snapshot
    assert chain.revision == wanted
    assert replayed(store, chain) == list(range(snapshot + 1, wanted + 1))


@pytest.mark.parametrize(
    ("wanted", "snapshot", "last"), [(16, 10, 16), (39, 10, 39), (44, 10, 44), (46, 40, 46), (999, 40, 60)]
)
def test_a_time(store: MemoryStore, wanted: int, snapshot: int, last: int) -> None:
    chain = chosen(store, at(wanted))
    assert chain.snapshot.revision == snapshot
    assert replayed(store, chain) == list(range(snapshot + 1, last + 1))


@given(st.integers(10, 60), st.lists(st.integers(11, 59), unique=True, max_size=6), st.integers(1, 4))
def test_any_point_however_the_log_is_cut_into_segments_and_frames(
    wanted: int, cuts: list[int], width: int
) -> None:
    store = MemoryStore()
    add_epoch(store)
    add_snapshot(store, KEYS, 10)
    bounds = [10, *sorted(cuts), 60]
    for start, end in itertools.pairwise(bounds):
        numbers = list(range(start + 1, end + 1))
        batches = [[revision(n) for n in numbers[i : i + width]] for i in range(0, len(numbers), width)]
        add_log(store, KEYS, batches, after=start)
    assert replayed(store, chosen(store, f"revision:{wanted}")) == list(range(11, wanted + 1))
    if wanted >= 15:
        assert replayed(store, chosen(store, at(wanted))) == list(range(11, wanted + 1))


def test_a_choice_reads_little(store: MemoryStore) -> None:
    found = catalogue(store, NAMES)
    store.requests.clear()
    choose(store, found, Point("revision", 25))
    assert store.requests["list"] == 0
    assert store.requests["read"] <= 6


def test_what_an_old_list_lacks_is_found_by_its_name(store: MemoryStore) -> None:
    segment = segment_at(store, 51)
    take_over(store, NAMES, 1, "az-2")
    old = catalogue(store, NAMES)
    SegmentWriter.begin(store, KEYS, NAMES, 1, take_over(store, NAMES, 1, "az-2")).seal()
    for first in (61, 66):
        add_log(store, KEYS, [[revision(n) for n in range(first, first + 5)]])
    assert old.segments[-1].name == segment
    chain = choose(store, old, Point(), KEYS)
    assert chain.revision == 70
    assert replayed(store, chain) == list(range(41, 71))
    assert choose(store, old, Point("revision", 62)).links[-1].revision == 65


def test_an_epoch_that_an_old_list_lacks_is_found_by_its_name(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored_at(store, 55, 70)
    everything = store.list
    for hidden in (NAMES.epoch(2), NAMES.epochs):
        monkeypatch.setattr(
            store,
            "list",
            lambda prefix, hidden=hidden: (i for i in everything(prefix) if not i.name.startswith(hidden)),
        )
        assert [epoch.epoch for epoch in catalogue(store, NAMES).epochs] == [1, 2]


def test_an_idle_log_proves_how_far_it_is(store: MemoryStore) -> None:
    add_log(store, KEYS, [[Progress(60, START_MS + 90_000)]], sealed=False)
    chain = chosen(store)
    assert chain.revision == 60
    assert chain.time_ms == START_MS + 90_000


@pytest.mark.parametrize(
    "text", ["", "now", "time:", "time:yesterday", "time:2026-11-22T14:03:00", "revision:", "revision:0",
             "revision:-4", "revision:x", "latest:1"],
)  # fmt: skip
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(ProgramError, match="no point to restore"):
        Point.parse(text)


@pytest.mark.parametrize("text", ["latest", "revision:12", "time:2026-11-22T14:03:00.250Z"])
def test_a_point_is_written_as_it_is_read(text: str) -> None:
    assert str(Point.parse(text)) == text


def test_an_offset_counts() -> None:
    assert Point.parse("time:2026-11-22T15:03:00+01:00") == Point.parse("time:2026-11-22T14:03:00Z")


@pytest.mark.parametrize("point", ["revision:9", at(9), at(12)])
def test_a_point_before_the_first_snapshot_is_refused(store: MemoryStore, point: str) -> None:
    with pytest.raises(ProgramError, match=r"before the first snapshot: revision 10 at .* epoch 1") as caught:
        chosen(store, point)
    assert "revision:10" in caught.value.remedy


def test_a_revision_that_was_never_backed_up_is_refused(store: MemoryStore) -> None:
    with pytest.raises(ProgramError, match="to revision 60, not to 61"):
        chosen(store, "revision:61")


def test_a_store_without_backups_says_so() -> None:
    with pytest.raises(ProgramError, match="no backups that the site lab signed"):
        chosen(MemoryStore())
    begun = MemoryStore()
    add_epoch(begun)
    with pytest.raises(ProgramError, match="No snapshot"):
        chosen(begun)


def test_a_missing_segment_is_a_gap_with_its_revisions(store: MemoryStore) -> None:
    name = segment_at(store, 41)
    del store.things[name]
    with pytest.raises(ChainError, match="Revisions 41 to 50 are missing") as caught:
        chosen(store)
    assert caught.value.gap == (41, 50)
    assert "revision:40" in caught.value.remedy
    assert replayed(store, chosen(store, "revision:40")) == []


def test_a_point_before_a_gap_is_reached(store: MemoryStore) -> None:
    del store.things[segment_at(store, 31)]
    assert replayed(store, chosen(store, "revision:30")) == list(range(11, 31))
    assert replayed(store, chosen(store)) == list(range(41, 61))
    with pytest.raises(ChainError) as caught:
        chosen(store, "revision:35")
    assert caught.value.gap == (31, 40)
    with pytest.raises(ChainError) as caught:
        chosen(store, at(35))
    assert caught.value.gap == (31, 40)


def test_a_missing_segment_without_revisions_is_found_too(store: MemoryStore) -> None:
    idle = add_log(store, KEYS, [[Progress(60, START_MS + 61_000)]])
    add_log(store, KEYS, [[revision(61)]])
    assert chosen(store).revision == 61
    del store.things[idle]
    with pytest.raises(ChainError, match="is missing") as caught:
        chosen(store)
    assert caught.value.altered == idle


def test_a_gap_that_the_agent_left_is_named(store: MemoryStore) -> None:
    add_log(store, KEYS, [[revision(71)]], after=70)
    with pytest.raises(ChainError) as caught:
        chosen(store)
    assert caught.value.gap == (61, 70)
    assert replayed(store, chosen(store, "revision:60")) == list(range(41, 61))
    add_snapshot(store, KEYS, 70)
    assert replayed(store, chosen(store)) == [71]


def test_the_end_of_a_segment_that_is_cut_off_is_found(store: MemoryStore) -> None:
    name = segment_at(store, 41)
    for length in (store.size(name) - 1, store.size(name) - 200):
        del store.things[name].data[length:]
        with pytest.raises(ChainError) as caught:
            chosen(store)
        assert caught.value.altered == name
    del store.things[name].data[100:]
    with pytest.raises(ChainError, match="first frame is cut off"):
        chosen(store)
    del store.things[name].data[:]
    with pytest.raises(ChainError) as caught:
        chosen(store)
    assert caught.value.gap == (41, 50)


@given(st.data())
def test_any_flipped_bit_in_the_log_is_found_before_a_wrong_state_is(data: st.DataObject) -> None:
    store = MemoryStore()
    add_epoch(store)
    add_snapshot(store, KEYS, 10)
    names = [add_log(store, KEYS, [[revision(n)], [revision(n + 1)]], after=n - 1) for n in (11, 13, 15)]
    name = data.draw(st.sampled_from(names))
    bytes_ = store.things[name].data
    bytes_[data.draw(st.integers(0, len(bytes_) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        # What seals the last segment comes behind the point.
        assert replayed(store, chosen(store, "revision:16")) == list(range(11, 17))
        assert name == names[-1]
    except ChainError as error:
        assert name in str(error)


@given(st.data())
def test_any_flipped_bit_in_a_snapshot_is_found(data: st.DataObject) -> None:
    store = MemoryStore()
    add_epoch(store)
    identifier = add_snapshot(store, KEYS, 10)
    (snapshot,) = catalogue(store, NAMES).snapshots
    assert b"".join(read_snapshot(store, KEYS, snapshot)) == b"database"
    name = NAMES.snapshot_data(1, identifier)
    bytes_ = store.things[name].data
    bytes_[data.draw(st.integers(0, len(bytes_) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ChainError) as caught:
        b"".join(read_snapshot(store, KEYS, snapshot))
    assert caught.value.altered == name


@pytest.mark.parametrize("damage", ["manifest", "data missing", "data cut", "other cluster"])
def test_a_damaged_snapshot_is_named_and_the_one_before_it_used(store: MemoryStore, damage: str) -> None:
    identifier = snapshot_id(40, START_MS // 1000 + 40)
    manifest, data = NAMES.snapshot_manifest(1, identifier), NAMES.snapshot_data(1, identifier)
    if damage == "manifest":
        store.things[manifest].data[30] ^= 1
    elif damage == "data missing":
        del store.things[data]
    elif damage == "data cut":
        del store.things[data].data[-1]
    else:
        from ironspan.backup.manifest import Manifest, dump, load

        other = load(Manifest, bytes(store.things[manifest].data), manifest, NAMES.proof)
        import dataclasses

        store.things[manifest].data[:] = dump(
            dataclasses.replace(other, cluster_id="beef"), manifest, NAMES.proof
        )
    assert list(catalogue(store, NAMES).damaged) == [manifest]
    chain = chosen(store)
    assert chain.snapshot.revision == 10
    assert replayed(store, chain) == list(range(11, 61))


def test_data_without_a_manifest_is_no_snapshot(store: MemoryStore) -> None:
    name = NAMES.snapshot_data(1, snapshot_id(60, 1))
    store.put(name, [b"half"])
    found = catalogue(store, NAMES)
    assert [item.name for item in found.unfinished] == [name]
    assert chosen(store).snapshot.revision == 40


def test_the_newest_verdict_counts(store: MemoryStore) -> None:
    identifier = snapshot_id(10, START_MS // 1000 + 10)
    add_verdict(store, identifier, True, unix=100)
    assert [one.verified for one in catalogue(store, NAMES).snapshots] == [True, False]
    add_verdict(store, identifier, False, unix=200)
    assert not any(one.verified for one in catalogue(store, NAMES).snapshots)
    store.things[NAMES.verdict(1, identifier, 200)].data[9] ^= 1
    found = catalogue(store, NAMES)
    assert [one.verified for one in found.snapshots] == [True, False]
    assert list(found.damaged) == [NAMES.verdict(1, identifier, 200)]


def test_a_missing_key_is_refused_before_anything_is_fetched(tmp_path: pathlib.Path) -> None:
    keys = file_keys(tmp_path, [1])
    store = MemoryStore()
    add_epoch(store)
    add_snapshot(store, keys, 10)
    file_keys(tmp_path, [2])
    add_log(store, keys, [[revision(11)]], after=10)
    found = catalogue(store, NAMES)
    assert choose(store, found, Point(), keys).revision == 11
    (tmp_path / "2.key").unlink()
    with pytest.raises(KeyMissing, match="'2'"):
        choose(store, found, Point(), keys)
    assert choose(store, found, Point("revision", 10), keys).revision == 10
    (tmp_path / "1.key").rename(tmp_path / "2.key")
    with pytest.raises(KeyMissing, match="'1'"):
        choose(store, found, Point(), keys)


def restored_at(store: MemoryStore, restored_revision: int, at_revision: int) -> None:
    add_epoch(
        store, 2, Restored("any", restored_revision, 1_000_000, 1), created_ms=START_MS + at_revision * 1000
    )


def test_an_epoch_that_was_restored_from_one_long_ago_is_what_that_was(store: MemoryStore) -> None:
    restored_at(store, 55, 70)
    add_snapshot(store, PlainKeys(), 1_000_060, epoch=2)
    third = Restored("any", 57, 2_000_000, 2)
    add_epoch(store, 3, third, created_ms=START_MS + 2_000_000 * 1000)
    chain = choose(store, catalogue(store, NAMES), Point())
    assert (chain.epoch.epoch, chain.revision) == (1, 57)


def test_until_its_first_snapshot_an_epoch_is_what_it_was_restored_from(store: MemoryStore) -> None:
    restored_at(store, 55, 70)
    chain = chosen(store)
    assert chain.epoch.epoch == 1
    assert replayed(store, chain) == list(range(41, 56))
    add_log(store, KEYS, [[revision(1_000_056)]], after=1_000_055, epoch=2)
    with pytest.raises(ProgramError, match=r"Epoch 2, which began at .* has no snapshot"):
        chosen(store)
    assert chosen(store, "revision:60").epoch.epoch == 1
    with pytest.raises(ProgramError, match="has no snapshot"):
        chosen(store, at(75))
    assert replayed(store, chosen(store, at(65))) == list(range(41, 61))


def test_a_point_of_an_epoch_that_is_over(store: MemoryStore) -> None:
    restored_at(store, 55, 70)
    add_snapshot(store, KEYS, 1_000_055, epoch=2, unix=START_MS // 1000 + 71)
    add_log(store, KEYS, [[revision(1_000_056)]], after=1_000_055, epoch=2)
    assert replayed(store, chosen(store)) == [1_000_056]
    assert replayed(store, chosen(store, "revision:58")) == list(range(41, 59))
    assert replayed(store, chosen(store, "revision:1000056")) == [1_000_056]
    with pytest.raises(ProgramError, match="to revision 60, not to 500"):
        chosen(store, "revision:500")
    assert replayed(store, chosen(store, at(58))) == list(range(41, 59))


def test_the_last_revision_ever_seen(store: MemoryStore) -> None:
    assert last_seen(MemoryStore(), catalogue(MemoryStore(), NAMES)) == 0
    assert last_seen(store, catalogue(store, NAMES)) == 60
    SegmentWriter.begin(store, KEYS, NAMES, 1, take_over(store, NAMES, 1, "az-2"))
    assert last_seen(store, catalogue(store, NAMES)) == 60
    restored_at(store, 55, 70)
    assert last_seen(store, catalogue(store, NAMES)) == 1_000_055
    add_snapshot(store, KEYS, 1_000_070, epoch=2)
    assert last_seen(store, catalogue(store, NAMES)) == 1_000_070


def test_segments_that_nobody_wrote_to_do_not_count(store: MemoryStore) -> None:
    for _ in range(2):
        SegmentWriter.begin(store, KEYS, NAMES, 1, take_over(store, NAMES, 1, "az-2"))
    add_log(store, KEYS, [[revision(61)]])
    assert replayed(store, chosen(store)) == list(range(41, 62))


def test_a_segment_whose_first_frame_is_damaged_is_passed_where_the_next_writer_did(
    store: MemoryStore,
) -> None:
    name = segment_at(store, 51)
    store.things[name].data[3] ^= 1
    with pytest.raises(ChainError) as caught:
        chosen(store)
    assert caught.value.altered == name
    assert replayed(store, chosen(store, "revision:50")) == list(range(41, 51))
    end = take_over(store, NAMES, 1, "az-2")
    assert (end.revision, end.number) == (50, 5)
    writer = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
    writer.append([revision(n) for n in range(51, 63)])
    assert replayed(store, chosen(store)) == list(range(41, 63))
