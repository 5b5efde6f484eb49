# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was written before objects were signed: kept, shown, restored by consent only, and the way over."""

from __future__ import annotations

import base64
import dataclasses
import hashlib

import pytest

from ironspan.backup import crypto
from ironspan.backup.agent import epoch as epochs
from ironspan.backup.agent.guard import kept_in
from ironspan.backup.agent.listing import as_text, contents
from ironspan.backup.catalogue import catalogue, unsigned
from ironspan.backup.chain import Point, choose
from ironspan.backup.errors import WrongCluster
from ironspan.backup.frame import Header, associated
from ironspan.backup.gc import collect
from ironspan.backup.log_reader import read_log
from ironspan.backup.manifest import Epoch, Manifest, Restored
from ironspan.backup.names import snapshot_id
from ironspan.backup.new_epoch import begin
from ironspan.backup.proof import UNSIGNED_SCHEMA
from ironspan.backup.records import Revision, encode
from ironspan.backup.settings import Retention
from ironspan.backup.store import Store
from ironspan.program.errors import ProgramError
from tests.support.backup_log import CLUSTER, NAMES, PlainKeys, add_log, add_snapshot, revision
from tests.support.hostile_writer import unsigned_bytes, unsigned_frame
from tests.support.memory_store import MemoryStore

KEYS = PlainKeys()
ID = int(CLUSTER, 16)
COUNTS = Retention(1, 0, 0, 0)


def unsigned_store(store: Store, cluster: str = CLUSTER) -> list[str]:
    """Make what an agent of before left: two epochs, a snapshot of revision 10, the log to 13."""
    for number in (1, 2):
        store.put(NAMES.epoch(number), [unsigned_bytes(Epoch(number, cluster, 100 * number))])
    identifier = snapshot_id(10, 500)
    data_key = crypto.new_data_key()
    name = NAMES.snapshot_data(2, identifier)
    store.put(name, crypto.encrypt([b"old"], data_key, name))
    manifest = Manifest(
        site=NAMES.site, epoch=2, cluster_id=cluster, revision=10, compact_revision=1, hashkv=1,
        etcd_version="3.6.16", storage_version="3.6.0", created=500, size=3,
        sha256=hashlib.sha256(b"old").hexdigest(), parts=1, key_version="1", wrapped_key=data_key,
        object_counts={},
    )  # fmt: skip
    store.put(NAMES.snapshot_manifest(2, identifier), [unsigned_bytes(manifest)])
    segment = NAMES.log(2, 11, 1)
    store.create_append(segment)
    size, previous = 0, ""
    for number, last in enumerate((11, 12, 13)):
        header = Header(number, previous, last, last, last * 1000)
        if not number:
            wrapped = base64.b64encode(data_key).decode()
            header = dataclasses.replace(header, key_version="1", wrapped_key=wrapped)

        def sealing(head: bytes, number: int = number, last: int = last) -> bytes:
            plain = encode([revision(last)])
            return crypto.seal(data_key, number, plain, associated(segment, head))

        frame = unsigned_frame(header, sealing=sealing)
        size, previous = store.append(segment, frame, size), hashlib.sha256(frame).hexdigest()
    return [item.name for item in store.list(NAMES.everything)]


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    unsigned_store(made)
    return made


def replayed(store: Store, point: str) -> list[int]:
    chosen = Point.parse(point)
    found = unsigned(store, NAMES) if chosen.unsigned else catalogue(store, NAMES)
    chain = choose(store, found, chosen, KEYS)
    segments = [(link.segment.name, link.digest) for link in chain.links]
    schema = UNSIGNED_SCHEMA if chosen.unsigned else 2
    records = read_log(store, KEYS, segments, chain.snapshot.revision, schema=schema)
    return [record.revision for record in records if isinstance(record, Revision)]


def test_it_is_restored_by_consent_and_by_no_other_way(store: MemoryStore) -> None:
    with pytest.raises(ProgramError, match=r"(?s)no backups that the site lab signed.*unsigned:latest"):
        raise_remedy(store, "latest")
    assert replayed(store, "unsigned:latest") == [11, 12, 13]
    assert replayed(store, "unsigned:revision:12")[:2] == [11, 12]


def raise_remedy(store: Store, point: str) -> None:
    try:
        replayed(store, point)
    except ProgramError as error:
        raise ProgramError(str(error)) from error


def test_the_first_agent_that_signs_begins_an_epoch_of_its_own(store: MemoryStore) -> None:
    before = {item.name for item in store.list(NAMES.everything)}
    made = epochs.open_epoch(store, NAMES, ID, 900, 13)
    assert (made.epoch, made.cluster_id, made.restored) == (3, CLUSTER, None)
    assert epochs.open_epoch(store, NAMES, ID, 950, 14) == made
    assert kept_in(store, NAMES, made).revision == 0, "nothing unsigned tells the guard anything"
    with pytest.raises(ProgramError, match="No snapshot"):
        replayed(store, "latest")
    add_snapshot(store, KEYS, 20, epoch=3)
    add_log(store, KEYS, [[revision(21)]], after=20, epoch=3)
    assert replayed(store, "latest") == [21]
    assert replayed(store, "unsigned:latest") == [11, 12, 13]
    shown = contents(store, NAMES)
    assert [one["revision"] for one in shown["snapshots"]] == [20]
    assert [one["revision"] for one in shown["unsigned"]] == [10]
    assert not shown["damaged"]
    assert not shown["unknown"]
    assert "unsigned, restored only as unsigned:POINT: epoch 2" in as_text([shown])
    assert before <= {item.name for item in store.list(NAMES.everything)}


def test_an_unsigned_epoch_behind_a_signed_one_is_somebody_elses(store: MemoryStore) -> None:
    epochs.open_epoch(store, NAMES, ID, 900, 13)
    store.put(NAMES.epoch(4), [unsigned_bytes(Epoch(4, "bad", 5))])
    found = catalogue(store, NAMES)
    assert list(found.damaged) == [NAMES.epoch(4)]
    assert [one.epoch for one in unsigned(store, NAMES).epochs] == [1, 2]
    assert epochs.newest(store, NAMES) == found.epochs[-1]


@pytest.mark.parametrize(("cluster", "revision_now"), [(ID, 12), (ID + 1, 99)])
def test_a_database_that_does_not_fit_waits_for_a_person(
    store: MemoryStore, cluster: int, revision_now: int
) -> None:
    with pytest.raises(WrongCluster, match="ironspan backup accept"):
        try:
            epochs.open_epoch(store, NAMES, cluster, 900, revision_now)
        except WrongCluster as error:
            raise WrongCluster(str(error)) from error
    assert epochs.newest(store, NAMES) is None
    begin(store, NAMES, f"{cluster:x}", Restored("disk", revision_now, 0, 0), 901)
    made = epochs.open_epoch(store, NAMES, cluster, 902, revision_now)
    assert made.epoch == 3
    assert made.restored == Restored("disk", revision_now, 0, 2)


def test_the_collector_takes_it_away_when_it_is_told_to(store: MemoryStore) -> None:
    before = {item.name for item in store.list(NAMES.everything)}
    with pytest.raises(ProgramError, match="what is unsigned is all there is"):
        collect(store, NAMES, COUNTS, with_unsigned=True)
    epochs.open_epoch(store, NAMES, ID, 900, 13)
    add_snapshot(store, KEYS, 20, epoch=3)
    assert not collect(store, NAMES, COUNTS).deleted
    gone = collect(store, NAMES, COUNTS, with_unsigned=True).deleted
    assert set(gone) == {name for name in before if "/e000002/" in name}
    assert replayed(store, "latest") == []
