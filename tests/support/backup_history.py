# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What etcd did, told by itself, and whether a restore shows just that.

A ``Timeline`` is the history of one cluster, from its first revision to its loss; a restore begins the next
one. ``judge`` compares what a restored etcd holds with the timeline that it was restored from, and
``judge_log`` what the log says.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping

from ironspan.backup.records import Coalesced, Event, LeaseGrant, Record, Revision
from tests.support.etcd_history import Contents

type Row = tuple[bytes, int, int, int, int]
"""Of a key: value, create and mod revision, version, lease."""
SELDOM = b"/registry/leases/kube-node-lease/"
"""Keys whose values an agent may leave out where the same append replaces them."""
UNKNOWN_TTL_S, GONE_TTL_S = 3600, 60
"""What an agent says of a lease that etcd could not tell in time, and of one that was gone by then."""


@dataclasses.dataclass
class Timeline:
    """The history of one cluster.

    Attributes:
        epoch: the number of the backup's epoch.
        base: every key at the start.
        start: the revision that the cluster began with.
        granted: the seconds of every lease that there was, by its id.
        revoked: leases that were ended.
        revisions: everything behind ``start``, as etcd's watch says.
    """

    epoch: int
    base: Contents
    start: int
    granted: dict[int, int] = dataclasses.field(default_factory=dict)
    revoked: set[int] = dataclasses.field(default_factory=set)
    revisions: list[Revision] = dataclasses.field(default_factory=list)

    @property
    def last(self) -> int:
        """The last revision that is known."""
        return self.revisions[-1].revision if self.revisions else self.start

    def at(self, revision: int) -> Contents:
        """Return every key at a revision."""
        state = dict(self.base)
        for record in self.revisions:
            if record.revision > revision:
                break
            for event in record.events:
                if event.put:
                    state[event.key] = _row(event, record.revision)
                else:
                    state.pop(event.key, None)
        return state

    def rows(self, key: bytes) -> list[Row]:
        """Return everything that a key ever was."""
        found = [self.base[key]] if key in self.base else []
        for record in self.revisions:
            found += [_row(one, record.revision) for one in record.events if one.put and one.key == key]
        return found


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a restored etcd holds.

    Attributes:
        revision: the last one that was restored.
        contents: every key.
        leases: granted seconds and attached keys by id.
        exact: the log left no value out.
    """

    revision: int
    contents: Contents
    leases: Mapping[int, tuple[int, frozenset[bytes]]]
    exact: bool = True


def judge(timeline: Timeline, seen: Seen, promised: int = 0) -> list[str]:
    """Return what is not as it was.

    Args:
        timeline: what was restored from.
        seen: what is there.
        promised: the last revision that the agent had said is safe.
    """
    findings = []
    if seen.revision < promised:
        findings.append(f"revision {seen.revision} is restored, and {promised} was promised")
    if seen.revision > timeline.last:
        findings.append(f"revision {seen.revision} is restored, and etcd ended at {timeline.last}")
    expected = timeline.at(seen.revision)
    for key in sorted(expected.keys() | seen.contents.keys()):
        have, need = seen.contents.get(key), expected.get(key)
        if have == need or (not seen.exact and _left_out(timeline, key, have, need)):
            continue
        findings.append(f"{key!r} is {_shown(have)}, not {_shown(need)}")
    return findings + _leases(timeline, seen, expected)


def _row(event: Event, revision: int) -> Row:
    return event.value, event.create_revision, revision, event.version, event.lease


def _left_out(timeline: Timeline, key: bytes, have: Row | None, need: Row | None) -> bool:
    """Tell whether a difference is one that leaving out values makes."""
    if have is None or need is None or not key.startswith(SELDOM):
        return False
    rows = timeline.rows(key)
    # Another of its values with the right counts, or, at the log's end, what it was before.
    another = have[1:] == need[1:] and any(have[0] == row[0] for row in rows)
    return another or (have in rows and have[1] == need[1] and have[2] < need[2])


def _leases(timeline: Timeline, seen: Seen, expected: Contents) -> list[str]:
    attached: dict[int, set[bytes]] = collections.defaultdict(set)
    for key, row in expected.items():
        if row[4]:
            attached[row[4]].add(key)
    findings = [f"lease {lease} is lost" for lease in sorted(attached.keys() - seen.leases.keys())]
    for lease, (seconds, keys) in sorted(seen.leases.items()):
        if lease not in timeline.granted:
            findings.append(f"lease {lease} was never granted")
            continue
        if keys != attached[lease]:
            findings.append(f"lease {lease} has {sorted(keys)}, not {sorted(attached[lease])}")
        if seconds not in _seconds(timeline, lease):
            findings.append(f"lease {lease} lives for {seconds} s, not {timeline.granted[lease]}")
    return findings


def _seconds(timeline: Timeline, lease: int) -> set[int]:
    gone = {GONE_TTL_S} if lease in timeline.revoked else set()
    return {timeline.granted[lease], UNKNOWN_TTL_S, *gone}


def _shown(row: Row | None) -> str:
    if row is None:
        return "not there"
    value, create, modified, version, lease = row
    return f"{value[:24]!r} (created {create}, modified {modified}, version {version}, lease {lease})"


def judge_log(timeline: Timeline, records: Iterable[Record], after: int) -> list[str]:
    """Return what a log says that etcd did not do, once and in this order.

    Args:
        timeline: what etcd did.
        records: the log, as its reader gives it.
        after: the revision that it begins behind.
    """
    truth = {record.revision: record for record in timeline.revisions}
    known = set(timeline.granted) if after > timeline.start else {row[4] for row in timeline.base.values()}
    reached = after
    for record in records:
        if isinstance(record, LeaseGrant):
            known.add(record.id)
            if record.ttl_s not in _seconds(timeline, record.id):
                return [f"lease {record.id} lives for {record.ttl_s} s, says the log"]
        if not isinstance(record, Revision | Coalesced):
            continue
        if record.revision != reached + 1:
            return [f"revision {record.revision} follows on {reached}"]
        reached = record.revision
        did = truth.get(reached)
        if did is None:
            return [f"revision {reached} was never written"]
        if isinstance(record, Coalesced):
            if [event.key for event in did.events] != [record.key] or not record.key.startswith(SELDOM):
                return [f"revision {reached} left out {record.key!r}"]
            continue
        if record.events != did.events:
            return [f"revision {reached} has other events than etcd told"]
        unknown = {event.lease for event in record.events if event.lease} - known
        if unknown:
            return [f"revision {reached} uses the leases {sorted(unknown)} before they are granted"]
    return []
