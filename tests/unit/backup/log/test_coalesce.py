# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Coalescing leaves the keys' last values, all revisions and all versions as they are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.log.coalesce import NODE_LEASES, coalesce
from ironspan.backup.records import Coalesced, Event, LeaseGrant, Progress, Record, Revision

KEYS = [NODE_LEASES + b"a", NODE_LEASES + b"b", b"/registry/pods/a"]


class Replay:
    """Keys as etcd keeps them: value, version, creation and modification revision."""

    def __init__(self) -> None:
        self.keys: dict[bytes, tuple[bytes, int, int, int]] = {}
        self.seen: list[tuple[int, dict[bytes, tuple[int, int, int]]]] = []

    def put(self, revision: int, key: bytes, value: bytes) -> None:
        _, version, created, _ = self.keys.get(key, (b"", 0, revision, 0))
        self.keys[key] = (value, version + 1, created, revision)

    def run(self, records: Sequence[Record]) -> Replay:
        for record in records:
            if isinstance(record, Coalesced):
                self.put(record.revision, record.key, self.keys[record.key][0])
            elif isinstance(record, Revision):
                for event in record.events:
                    if event.put:
                        self.put(record.revision, event.key, event.value)
                    else:
                        self.keys.pop(event.key, None)
            if isinstance(record, (Coalesced, Revision)):
                self.seen.append((record.revision, {key: kv[1:] for key, kv in self.keys.items()}))
        return self


steps = st.lists(
    st.lists(
        st.tuples(st.sampled_from(KEYS), st.booleans()),
        min_size=1,
        max_size=2,
        unique_by=lambda step: step[0],
    ),
    max_size=20,
)


def records_of(transactions: list[list[tuple[bytes, bool]]]) -> list[Record]:
    versions: dict[bytes, int] = {}
    records: list[Record] = []
    revision = 10
    for transaction in transactions:
        events = []
        for key, put in transaction:
            if put:
                versions[key] = versions.get(key, 0) + 1
                events.append(Event(True, key, b"value of %d" % revision, 0, versions[key]))
            elif versions.pop(key, 0):
                events.append(Event(False, key))
        if events:
            records.append(Revision(revision, revision, tuple(events)))
            revision += 1
    return records


@given(steps)
def test_a_replay_ends_in_the_same_and_has_every_revision(
    transactions: list[list[tuple[bytes, bool]]],
) -> None:
    records = records_of(transactions)
    plain, coalesced = Replay().run(records), Replay().run(coalesce(records))
    assert coalesced.keys == plain.keys
    assert coalesced.seen == plain.seen


def lease(revision: int, **changes: int) -> Revision:
    fields = {"create_revision": 2, "version": revision, "lease": 0} | changes
    return Revision(revision, revision, (Event(True, KEYS[0], b"%d" % revision, **fields),))


def test_only_the_last_heartbeat_keeps_its_value() -> None:
    others: list[Record] = [LeaseGrant(1, 2), Progress(12, 5)]
    records = [lease(11), others[0], lease(12), others[1], lease(13)]
    assert coalesce(records) == [
        Coalesced(11, 11, KEYS[0]),
        others[0],
        Coalesced(12, 12, KEYS[0]),
        others[1],
        lease(13),
    ]


@pytest.mark.parametrize(
    "first",
    [
        lease(11, version=1),
        lease(11, lease=5),
        Revision(11, 11, (Event(True, KEYS[2], b"v", 2, 2),)),
        Revision(11, 11, (Event(False, KEYS[0]),)),
        Revision(11, 11, (*lease(11).events, Event(True, KEYS[1], b"v", 2, 2))),
        Revision(11, 11, lease(11).events, more=True),
    ],
    ids=["creation", "with an etcd lease", "another key", "deletion", "two keys", "part"],
)
def test_what_is_kept(first: Revision) -> None:
    second = Revision(12, 12, tuple(Event(True, e.key, b"new", 2, 3) for e in first.events))
    assert coalesce([first, second])[0] == first
