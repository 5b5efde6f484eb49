# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Snapshots without etcd: what is read out of the stream, and what is found wrong with it."""

from __future__ import annotations

import hashlib
import types
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.agent.database import DatabaseError, DatabaseReader
from ironspan.backup.agent.snapshotter import Checked, Snapshotter
from ironspan.backup.catalogue import catalogue
from ironspan.backup.crypto import decrypt
from ironspan.backup.errors import WrongCluster
from ironspan.backup.file_store import FileStore
from ironspan.backup.manifest import Epoch, dump
from ironspan.backup.objects import count, group
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Compacted, EtcdError, Unreachable
from ironspan.program.errors import ServiceError
from tests.support.backup_log import NAMES, PlainKeys
from tests.support.faulty_store import FaultyStore
from tests.support.small_database import database, snapshot

WHOLE = snapshot(database(range(2, 90), compacted=5, value_bytes=500))
EPOCH = Epoch(1, "abc", 1)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    yield from (data[at : at + size] for at in range(0, len(data), size))


# -- the revision in the stream --------------------------------------------------------------------


@given(
    revisions=st.sets(st.integers(2, 1 << 36), max_size=60),
    compacted=st.integers(0, 1 << 36),
    per_leaf=st.integers(1, 9),
    value_bytes=st.sampled_from([0, 30, 900, 5000]),
    page_bytes=st.sampled_from([512, 4096]),
    seed=st.integers(0, 1000),
    size=st.sampled_from([100, 4096, 5000, 1 << 20]),
)
def test_the_newest_revision_is_found(
    revisions: set[int],
    compacted: int,
    per_leaf: int,
    value_bytes: int,
    page_bytes: int,
    seed: int,
    size: int,
) -> None:
    # The branch has to fit one page, as bbolt makes it.
    if page_bytes == 512:
        revisions = set(sorted(revisions)[: 15 * per_leaf])
    data = database(
        sorted(revisions),
        compacted=compacted,
        per_leaf=per_leaf,
        value_bytes=value_bytes,
        page_bytes=page_bytes,
        seed=seed,
    )
    reader = DatabaseReader()
    for piece in pieces(data, size):
        reader.feed(piece)
    assert reader.revision() == max(1, compacted, *revisions, 1)


@pytest.mark.parametrize("data", [b"", b"x" * 1000, bytes(300_000)], ids=["empty", "short", "zeroes"])
def test_what_is_no_database_is_refused(data: bytes) -> None:
    reader = DatabaseReader()
    with pytest.raises(DatabaseError):
        reader.feed(data)
        reader.revision()


# -- the stream as a whole -------------------------------------------------------------------------


@given(size=st.sampled_from([500, 4096, 4128, 32 << 10, len(WHOLE)]))
def test_a_whole_stream_passes_unchanged(size: int) -> None:
    checked = Checked(pieces(WHOLE, size), "m1")
    assert b"".join(checked) == WHOLE
    assert (checked.size, checked.revision) == (len(WHOLE), 89)
    assert checked.sha256 == hashlib.sha256(WHOLE).hexdigest()


@given(length=st.integers(0, len(WHOLE) - 1) | st.sampled_from(range(32, len(WHOLE), 512)))
def test_a_cut_stream_is_found(length: int) -> None:
    with pytest.raises(EtcdError):
        b"".join(Checked(pieces(WHOLE[:length], 32 << 10), "m1"))


@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(at: int, bit: int) -> None:
    damaged = WHOLE[:at] + bytes([WHOLE[at] ^ 1 << bit]) + WHOLE[at + 1 :]
    with pytest.raises(EtcdError):
        b"".join(Checked(pieces(damaged, 32 << 10), "m1"))


# -- taking one ------------------------------------------------------------------------------------


class Cluster:
    """Three members, m1 the leader; ``streams`` says what a member streams."""

    endpoints = ("m1", "m2", "m3")

    def __init__(self) -> None:
        self.revision = dict.fromkeys(self.endpoints, 80)
        self.cluster_id = 0xABC
        self.streams: dict[str, Callable[[], Iterator[bytes]]] = {}
        self.asked: list[str] = []
        self.compacted = 0

    def status(self, endpoint: str) -> object:
        number = self.endpoints.index(endpoint) + 1
        header = types.SimpleNamespace(
            revision=self.revision[endpoint], cluster_id=self.cluster_id, member_id=number
        )
        return types.SimpleNamespace(
            header=header, leader=1, isLearner=False, version="3.6.14", storageVersion="3.6.0"
        )

    def snapshot(self, endpoint: str) -> Iterator[bytes]:
        self.asked.append(endpoint)
        return self.streams.get(endpoint, lambda: pieces(WHOLE, 32 << 10))()

    def hash_kv(self, endpoint: str, revision: int, timeout: float) -> object:
        if revision < self.compacted:
            raise Compacted("gone")
        return types.SimpleNamespace(hash=4711, compact_revision=5)

    def range(self, key: bytes, end: bytes, **more: object) -> object:
        return types.SimpleNamespace(kvs=[], count=88)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(FileStore(tmp_path))


@pytest.fixture
def snapshotter(cluster: Cluster, store: FaultyStore) -> Snapshotter:
    store.put(NAMES.epoch(1), [dump(EPOCH, NAMES.epoch(1), NAMES.proof)])
    return Snapshotter(t.cast("EtcdClient", cluster), store, PlainKeys(), NAMES, lambda: 1000.0)


def cut() -> Iterator[bytes]:
    yield from pieces(WHOLE[: len(WHOLE) // 2], 32 << 10)


def broken() -> Iterator[bytes]:
    yield WHOLE[: 64 << 10]
    raise Unreachable("the connection broke")


def test_a_snapshot_can_be_read_back_and_says_its_true_revision(
    snapshotter: Snapshotter, store: FaultyStore
) -> None:
    identifier, taken = snapshotter.take(EPOCH)
    name = NAMES.snapshot_data(1, identifier)
    assert identifier == f"{80:020d}-1000"
    assert b"".join(decrypt(store.read(name), taken.wrapped_key, name)) == WHOLE
    assert (taken.revision, taken.hashkv, taken.object_counts) == (89, 4711, {"": 88})
    assert [one.id for one in catalogue(store, NAMES).snapshots] == [identifier]


def test_followers_are_asked_first(snapshotter: Snapshotter, cluster: Cluster) -> None:
    cluster.streams = {"m2": cut, "m3": broken}
    snapshotter.take(EPOCH)
    assert cluster.asked == ["m2", "m3", "m1"]


def test_nothing_of_a_broken_stream_is_seen(
    snapshotter: Snapshotter, cluster: Cluster, store: FaultyStore
) -> None:
    cluster.streams = dict.fromkeys(cluster.endpoints, cut)
    with pytest.raises(EtcdError, match="is cut or damaged"):
        snapshotter.take(EPOCH)
    assert [item.name for item in store.list("")] == [NAMES.epoch(1)]


@pytest.mark.parametrize("part", ["/data", "/manifest.json"])
def test_a_store_that_fails_leaves_no_snapshot(
    snapshotter: Snapshotter, store: FaultyStore, part: str
) -> None:
    store.fault = lambda what, name: "refused" if what == "put" and name.endswith(part) else None
    with pytest.raises(ServiceError):
        snapshotter.take(EPOCH)
    assert not catalogue(store, NAMES).snapshots
    store.fault = lambda what, name: None
    identifier, _ = snapshotter.take(EPOCH)
    assert [one.id for one in catalogue(store, NAMES).snapshots] == [identifier]
    assert not catalogue(store, NAMES).damaged


def test_one_second_may_have_two_snapshots(snapshotter: Snapshotter) -> None:
    assert [snapshotter.take(EPOCH)[0] for _ in range(2)] == [f"{80:020d}-1000", f"{80:020d}-1001"]


def test_a_member_behind_the_log_is_not_asked(snapshotter: Snapshotter, cluster: Cluster) -> None:
    cluster.revision |= {"m2": 84, "m3": 85}
    snapshotter.take(EPOCH, 85)
    assert cluster.asked == ["m3"]


def test_another_cluster_is_refused(snapshotter: Snapshotter, cluster: Cluster, store: FaultyStore) -> None:
    cluster.cluster_id = 0xDEF
    store.calls.clear()
    with pytest.raises(WrongCluster):
        snapshotter.take(EPOCH)
    assert not [what for what, _ in store.calls if what == "put"]


def test_a_revision_compacted_meanwhile_leaves_no_hash(snapshotter: Snapshotter, cluster: Cluster) -> None:
    cluster.compacted = 100
    _, taken = snapshotter.take(EPOCH)
    assert (taken.revision, taken.hashkv, taken.compact_revision, taken.object_counts) == (89, 0, 0, {})


# -- counts ----------------------------------------------------------------------------------------


class Keys:
    """Answers ranges out of a list of keys."""

    def __init__(self, keys: set[bytes]) -> None:
        self.keys = sorted(keys)
        self.requests = 0

    def range(self, key: bytes, end: bytes, *, limit: int = 0, **more: object) -> object:
        self.requests += 1
        found = [one for one in self.keys if one >= key and (end == b"\0" or one < end)]
        return types.SimpleNamespace(
            kvs=[types.SimpleNamespace(key=one) for one in found[: limit or None]], count=len(found)
        )


PARTS = st.sampled_from([b"pods", b"pods-b", b"a.io", b"z", b"\xff"])
KEYS = st.builds(lambda *parts: b"/registry/" + b"/".join(parts), PARTS, PARTS) | st.builds(
    lambda part: b"/registry/" + part, PARTS
)


@given(keys=st.sets(KEYS | st.binary(min_size=1, max_size=4), max_size=30))
def test_counting_is_grouping_every_key(keys: set[bytes]) -> None:
    expected: dict[str, int] = {}
    for key in keys:
        expected[group(key)] = expected.get(group(key), 0) + 1
    assert count(t.cast("EtcdClient", Keys(keys)), "m1", 5) == expected


def test_counting_asks_twice_a_group() -> None:
    keys = Keys({b"/registry/pods/%d" % number for number in range(1000)} | {b"/registry/nodes/a"})
    assert count(t.cast("EtcdClient", keys), "m1", 5) == {"/registry/pods": 1000, "/registry/nodes": 1}
    assert keys.requests <= 6
