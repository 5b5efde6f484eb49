# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tells the log about etcd's leases: the watch shows their ids, and not how long they live."""

from __future__ import annotations

import collections
import time
import typing as t
from collections.abc import Callable, Sequence

from ironspan.backup.records import LeaseGone, LeaseGrant, Record, Revision
from ironspan.etcd.errors import EtcdError

GONE_TTL_S = 60
"""Of a lease that was gone before it could be asked for: its keys are about to be deleted by the log."""
UNKNOWN_TTL_S = 3600
"""Of a lease that etcd did not tell in time: what lives for too long does less harm than what is lost."""
SWEEP_S = 60.0
ASK_S = 1.0


class LeaseSource(t.Protocol):
    """What is asked of etcd; ``EtcdClient`` is one."""

    def lease_times(self, leases: Sequence[int], timeout: float) -> dict[int, int]:
        """Return the granted seconds of those leases that answer; -1 for one that is gone."""

    def lease_ids(self, timeout: float) -> tuple[int, set[int]]:
        """Return etcd's revision and the ids of all leases at it."""


class LeaseBook:
    """Puts ``LeaseGrant`` before the first use of a lease and ``LeaseGone`` behind its end. One thread.

    A lease is gone when two listings in a row lack it, and is told only once the log has passed the
    revision of the second one: until then its keys may still be there, and revoking it in a replay would
    delete them by a revision of its own.

    Args:
        source: of the leases.
        clock: seconds, never set back.
    """

    def __init__(self, source: LeaseSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: set[int] = set()
        self._missing: set[int] = set()
        self._going: collections.deque[tuple[int, int]] = collections.deque()
        self._next_sweep = clock() + SWEEP_S

    @property
    def known(self) -> int:
        """How many leases the log has been told of that live."""
        return len(self._known)

    def complete(self, records: Sequence[Record]) -> list[Record]:
        """Return the records with what there is to say about leases among them.

        Args:
            records: the next ones of the log, in order.
        """
        used = {
            event.lease
            for record in records
            if isinstance(record, Revision)
            for event in record.events
            if event.lease
        }
        times = self._times(sorted(used - self._known))
        result: list[Record] = []
        for record in records:
            if isinstance(record, Revision):
                for event in record.events:
                    if event.lease and event.lease not in self._known:
                        self._known.add(event.lease)
                        ttl = times.get(event.lease, UNKNOWN_TTL_S)
                        result.append(LeaseGrant(event.lease, ttl if ttl > 0 else GONE_TTL_S))
            result.append(record)
            if isinstance(record, Revision) and not record.more:
                while self._going and self._going[0][0] <= record.revision:
                    lease = self._going.popleft()[1]
                    self._known.discard(lease)
                    result.append(LeaseGone(lease))
        return result

    def _times(self, leases: Sequence[int]) -> dict[int, int]:
        try:
            return self._source.lease_times(leases, ASK_S) if leases else {}
        except EtcdError:
            return {}

    def sweep(self) -> None:
        """Once a minute, see which leases ended; costs one request to etcd."""
        now = self._clock()
        if now < self._next_sweep or not self._known:
            return
        self._next_sweep = now + SWEEP_S
        try:
            revision, alive = self._source.lease_ids(ASK_S)
        except EtcdError:
            return
        absent = self._known - alive - {lease for _, lease in self._going}
        self._going.extend((revision, lease) for lease in sorted(absent & self._missing))
        self._missing = absent - self._missing
