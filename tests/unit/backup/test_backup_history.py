# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The checker of the random runs finds what it is there for: planted losses, resurrections and disorder."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ironspan.backup.records import Coalesced, Event, LeaseGrant, Record, Revision
from tests.support.backup_history import SELDOM, Seen, Timeline, judge, judge_log

KEYS = [b"/registry/pods/%d" % number for number in range(5)] + [SELDOM + b"n"]
LEASES = {7: 5007, 8: 5008}
START = 10
few = settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Return what an etcd could have done; every value is another one."""
    timeline = Timeline(1, {KEYS[0]: (b"old", 3, 4, 2, 7)}, START, dict(LEASES))
    versions = {KEYS[0]: (3, 2)}
    for number in range(draw(st.integers(3, 20))):
        revision = START + 1 + number
        events = []
        for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)):
            if key in versions and draw(st.integers(0, 3)) == 0:
                del versions[key]
                events.append(Event(False, key))
                continue
            create, version = versions.get(key, (revision, 0))
            versions[key] = create, version + 1
            lease = draw(st.sampled_from([0, 0, 7, 8])) if key != KEYS[-1] else 0
            value = b"%d of %s" % (revision, key)
            events.append(Event(True, key, value, create, version + 1, lease))
        timeline.revisions.append(Revision(revision, revision, tuple(events)))
    return timeline


def seen(timeline: Timeline, revision: int, exact: bool = True) -> Seen:
    """Return what a right restore of a revision shows."""
    contents = timeline.at(revision)
    leases = {
        lease: (seconds, frozenset(key for key, row in contents.items() if row[4] == lease))
        for lease, seconds in LEASES.items()
    }
    return Seen(revision, contents, leases, exact)


def replaced(record: Revision, **fields: t.Any) -> Revision:
    return dataclasses.replace(record, **fields)


def changed(shown: Seen, contents: dict[bytes, t.Any], **more: t.Any) -> Seen:
    """Return the same but for some keys; None takes one away."""
    merged = {**shown.contents, **contents}
    left = {key: row for key, row in merged.items() if row is not None}
    leases = {
        lease: (seconds, frozenset(key for key, row in left.items() if row[4] == lease))
        for lease, (seconds, _) in shown.leases.items()
    }
    return dataclasses.replace(shown, contents=left, leases=leases, **more)


@few
@given(timelines(), st.data())
def test_a_right_restore_of_any_revision_is_right(timeline: Timeline, data: st.DataObject) -> None:
    revision = data.draw(st.integers(START, timeline.last))
    assert judge(timeline, seen(timeline, revision), promised=revision) == []
    assert judge_log(timeline, [*map(LeaseGrant, LEASES, LEASES.values()), *timeline.revisions], START) == []


@few
@given(timelines(), st.data())
def test_less_than_was_promised_is_found(timeline: Timeline, data: st.DataObject) -> None:
    promised = data.draw(st.integers(START + 1, timeline.last))
    shown = seen(timeline, data.draw(st.integers(START, promised - 1)))
    assert "was promised" in judge(timeline, shown, promised)[0]
    # The same keys do not do when they are said to be those of the promised revision.
    pretended = dataclasses.replace(shown, revision=promised)
    assume(timeline.at(promised) != shown.contents)
    assert judge(timeline, pretended, promised)


@few
@given(timelines())
def test_more_than_there_was_is_found(timeline: Timeline) -> None:
    assert judge(timeline, dataclasses.replace(seen(timeline, timeline.last), revision=timeline.last + 1))


@few
@given(timelines(), st.data())
def test_a_record_that_was_dropped_is_found(timeline: Timeline, data: st.DataObject) -> None:
    dropped = data.draw(st.integers(0, len(timeline.revisions) - 1))
    less = [one for number, one in enumerate(timeline.revisions) if number != dropped]
    wrong = dataclasses.replace(timeline, revisions=less)
    if dropped < len(less):
        assert judge_log(timeline, less, START)
    assume(wrong.at(timeline.last) != timeline.at(timeline.last))
    assert judge(timeline, dataclasses.replace(seen(wrong, wrong.last), revision=timeline.last))


@few
@given(timelines(), st.data())
def test_two_records_that_were_swapped_are_found(timeline: Timeline, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(timeline.revisions) - 2))
    one, two = timeline.revisions[first : first + 2]
    swapped = list(timeline.revisions)
    swapped[first : first + 2] = two, one
    assert judge_log(timeline, swapped, START)
    # Also when each has the number of the other one.
    swapped[first : first + 2] = replaced(two, revision=one.revision), replaced(one, revision=two.revision)
    assume(one.events != two.events)
    assert judge_log(timeline, swapped, START)
    wrong = dataclasses.replace(timeline, revisions=swapped)
    assume(wrong.at(two.revision) != timeline.at(two.revision))
    assert judge(timeline, seen(wrong, two.revision))


@few
@given(timelines())
def test_a_record_that_is_there_twice_is_found(timeline: Timeline) -> None:
    assert judge_log(timeline, [timeline.revisions[0], *timeline.revisions], START)


@few
@given(timelines(), st.data())
def test_a_deleted_key_that_is_back_is_found(timeline: Timeline, data: st.DataObject) -> None:
    revision = data.draw(st.integers(START, timeline.last))
    now = timeline.at(revision)
    gone = {key: rows[-1] for key in KEYS if key not in now and (rows := timeline.rows(key))}
    assume(gone)
    key = data.draw(st.sampled_from(sorted(gone)))
    exact = data.draw(st.booleans())
    assert judge(timeline, changed(seen(timeline, revision, exact), {key: gone[key]}))


@few
@given(timelines(), st.data())
def test_a_key_of_before_or_after_is_found(timeline: Timeline, data: st.DataObject) -> None:
    revision = data.draw(st.integers(START, timeline.last))
    key = data.draw(st.sampled_from(KEYS))
    other = data.draw(st.sampled_from([*timeline.rows(key), None]))
    assume(other != timeline.at(revision).get(key))
    assert judge(timeline, changed(seen(timeline, revision), {key: other}))


@few
@given(timelines(), st.sampled_from([1, 2, 3, 4]))
def test_a_wrong_revision_version_or_lease_is_found(timeline: Timeline, field: int) -> None:
    shown = seen(timeline, timeline.last)
    assume(shown.contents)
    key, row = next(iter(shown.contents.items()))
    wrong: list[t.Any] = list(row)
    wrong[field] = 15 - row[4] if field == 4 else wrong[field] + 1
    assert judge(timeline, changed(shown, {key: tuple(wrong)}))


@few
@given(timelines())
def test_what_the_abandoned_cluster_wrote_is_found(timeline: Timeline) -> None:
    half = (START + timeline.last) // 2
    following = Timeline(2, timeline.at(half), half + 1_000_000, dict(LEASES))
    shown = dataclasses.replace(seen(timeline, half), revision=following.start)
    assert judge(following, shown) == []
    assume(timeline.at(timeline.last) != timeline.at(half))
    assert judge(following, dataclasses.replace(seen(timeline, timeline.last), revision=following.start))


LEASED = Timeline(
    1,
    {},
    START,
    {7: 5007, 8: 5008},
    revisions=[Revision(11, 11, (Event(True, KEYS[0], b"v", 11, 1, 7),))],
)


@pytest.mark.parametrize(
    ("leases", "finding"),
    [
        ({}, "lease 7 is lost"),
        ({7: (5007, frozenset())}, "lease 7 has [], not"),
        ({7: (5008, frozenset({KEYS[0]}))}, "lease 7 lives for 5008 s, not 5007"),
        ({7: (60, frozenset({KEYS[0]}))}, "lease 7 lives for 60 s"),
        ({7: (5007, frozenset({KEYS[0]})), 9: (1, frozenset())}, "lease 9 was never granted"),
        ({7: (5007, frozenset({KEYS[0]})), 8: (5008, frozenset({KEYS[0]}))}, "lease 8 has"),
        ({7: (5007, frozenset({KEYS[0], KEYS[1]}))}, "lease 7 has"),
    ],
)
def test_a_lease_that_is_lost_kept_or_invented_is_found(leases: dict[int, t.Any], finding: str) -> None:
    shown = seen(LEASED, 11)
    assert judge(LEASED, dataclasses.replace(shown, leases={7: shown.leases[7]})) == []
    assert any(finding in one for one in judge(LEASED, dataclasses.replace(shown, leases=leases)))


def node(revision: int, version: int) -> Revision:
    return Revision(revision, 0, (Event(True, KEYS[-1], b"%d" % revision, 11, version),))


NODE = Timeline(1, {}, START, LEASES, revisions=[node(11, 1), node(12, 2), node(13, 3)])


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ((b"12", 11, 12, 2, 0), True),
        ((b"13", 11, 12, 2, 0), True),
        ((b"11", 11, 11, 1, 0), True),
        ((b"other", 11, 12, 2, 0), False),
        ((b"13", 11, 13, 3, 0), False),
        ((b"12", 11, 12, 3, 0), False),
        (None, False),
    ],
)
def test_only_values_of_node_leases_may_differ_and_only_where_some_were_left_out(
    row: t.Any, right: bool
) -> None:
    shown = seen(NODE, 12, exact=False)
    assert (judge(NODE, changed(shown, {KEYS[-1]: row})) == []) is right
    exact = judge(NODE, changed(dataclasses.replace(shown, exact=True), {KEYS[-1]: row})) == []
    assert exact is (row == (b"12", 11, 12, 2, 0))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda log: log[1:], "before they are granted"),
        (lambda log: [LeaseGrant(7, 1), *log[1:]], "lives for 1 s"),
        (lambda log: [*log, Revision(12, 0, (Event(False, KEYS[0]),))], "never written"),
        (lambda log: [log[0], replaced(log[1], events=())], "other events"),
        (lambda log: [log[0], Coalesced(11, 0, KEYS[0])], "left out"),
        (lambda log: [log[0], replaced(log[1], revision=12)], "follows on 10"),
    ],
)
def test_a_log_that_says_something_else_is_found(
    change: Callable[[list[t.Any]], list[Record]], finding: str
) -> None:
    log: list[Record] = [LeaseGrant(7, 5007), *LEASED.revisions]
    assert judge_log(LEASED, log, START) == []
    assert finding in judge_log(LEASED, change(log), START)[0]


def test_a_log_may_leave_out_what_a_node_said() -> None:
    log: list[Record] = [NODE.revisions[0], Coalesced(12, 0, KEYS[-1]), NODE.revisions[2]]
    assert judge_log(NODE, log, START) == []
