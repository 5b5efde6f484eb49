# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Watch responses become transactions, however etcd cuts them and wherever a connection ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.log.group import Gap, Grouper
from ironspan.backup.records import Event, Revision
from ironspan.etcd import rpc_pb2 as rpc

FIRST = 100


def event(revision: int, number: int) -> rpc.Event:
    kv = rpc.KeyValue(
        key=b"%d/%d" % (revision, number), value=b"v", mod_revision=revision, version=3, lease=7
    )
    if number % 3 == 2:
        return rpc.Event(type=rpc.Event.DELETE, kv=rpc.KeyValue(key=kv.key, mod_revision=revision))
    return rpc.Event(type=rpc.Event.PUT, kv=kv)


def history(sizes: list[int]) -> list[list[rpc.Event]]:
    return [[event(FIRST + number, at) for at in range(size)] for number, size in enumerate(sizes)]


def responses(
    transactions: list[list[rpc.Event]], per_response: list[int], cuts: set[int]
) -> list[rpc.WatchResponse]:
    """Cut like etcd: whole transactions in a response, a response in fragments at any event."""
    result: list[rpc.WatchResponse] = []
    at, counts = 0, iter(per_response)
    position = 0
    while at < len(transactions):
        count = next(counts, 1)
        events = [event for transaction in transactions[at : at + count] for event in transaction]
        at += count
        piece: list[rpc.Event] = []
        for one in events:
            if piece and position in cuts:
                result.append(rpc.WatchResponse(events=piece, fragment=True))
                piece = []
            piece.append(one)
            position += 1
        result.append(rpc.WatchResponse(events=piece))
    return result


def joined(records: list[Revision]) -> dict[int, tuple[Event, ...]]:
    found: dict[int, tuple[Event, ...]] = {}
    complete = FIRST - 1
    for record in records:
        assert record.revision == complete + 1
        found[record.revision] = found.get(record.revision, ()) + record.events
        complete += not record.more
    assert complete == FIRST - 1 + len(found)
    return found


def expected(transactions: list[list[rpc.Event]]) -> dict[int, tuple[Event, ...]]:
    return {
        FIRST + number: tuple(
            Event(True, e.kv.key, e.kv.value, 0, 3, 7) if e.type == rpc.Event.PUT else Event(False, e.kv.key)
            for e in transaction
        )
        for number, transaction in enumerate(transactions)
    }


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@given(
    SIZES,
    st.lists(st.integers(1, 3), max_size=8),
    st.sets(st.integers(0, 50)),
    st.lists(st.integers(0, 20), max_size=4),
    st.lists(st.sets(st.integers(0, 50)), min_size=4, max_size=4),
)
def test_nothing_is_lost_doubled_or_mixed(
    sizes: list[int],
    per_response: list[int],
    cuts: set[int],
    breaks: list[int],
    other_cuts: list[set[int]],
) -> None:
    transactions = history(sizes)
    grouper = Grouper(FIRST)
    records: list[Revision] = []
    for number, length in enumerate(breaks):
        left = transactions[grouper.next - FIRST :]
        for response in responses(left, per_response, other_cuts[number])[:length]:
            records += grouper.feed(response, 1)
        grouper.restart()
    for response in responses(transactions[grouper.next - FIRST :], per_response, cuts):
        records += grouper.feed(response, 1)
    assert joined(records) == expected(transactions)
    assert grouper.next == FIRST + len(sizes)


def test_a_large_transaction_is_given_in_parts() -> None:
    grouper = Grouper(FIRST)
    events = history([9])[0]
    first = grouper.feed(rpc.WatchResponse(events=events[:3], fragment=True), 1)
    second = grouper.feed(rpc.WatchResponse(events=events[3:6], fragment=True), 2)
    third = grouper.feed(rpc.WatchResponse(events=events[6:]), 3)
    assert [[(r.more, len(r.events)) for r in part] for part in (first, second, third)] == [
        [],
        [(True, 3)],
        [(True, 3), (False, 3)],
    ]


def test_responses_without_events_change_nothing() -> None:
    grouper = Grouper(FIRST)
    assert grouper.feed(rpc.WatchResponse(created=True), 1) == []
    assert grouper.feed(rpc.WatchResponse(header=rpc.ResponseHeader(revision=FIRST)), 1) == []
    assert grouper.next == FIRST


@pytest.mark.parametrize("revisions", [(FIRST + 1,), (FIRST, FIRST + 2), (FIRST - 1,), (FIRST, FIRST - 3)])
def test_a_revision_that_is_not_the_next_is_a_gap(revisions: tuple[int, ...]) -> None:
    grouper = Grouper(FIRST)
    with pytest.raises(Gap) as gap:
        for revision in revisions:
            grouper.feed(rpc.WatchResponse(events=[event(revision, 0)]), 1)
    assert gap.value.gap is not None
    assert gap.value.gap[0] == FIRST + len(revisions) - 1
