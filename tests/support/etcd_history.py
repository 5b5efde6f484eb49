# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Random histories in a real etcd, what its watch says of them, and what its keys are at a revision."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import strategies as st

from ironspan.backup.records import Event, LeaseGone, LeaseGrant, Record, Revision
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import ALL, EtcdClient

NAMES = [b"/registry/%s/%d" % (kind, number) for kind in (b"pods", b"nodes") for number in range(4)]


@dataclasses.dataclass(frozen=True)
class Put:
    key: bytes
    value: bytes
    lease: int = 0
    """Number of one of the history's leases, from 1; 0 for none."""


@dataclasses.dataclass(frozen=True)
class Delete:
    key: bytes
    end: bytes = b""


@dataclasses.dataclass(frozen=True)
class Revoke:
    lease: int


type Step = tuple[Put | Delete, ...] | Revoke

_PUTS = st.builds(Put, st.sampled_from(NAMES), st.binary(max_size=40), st.sampled_from([0, 0, 0, 1, 2]))
_DELETES = st.builds(Delete, st.sampled_from(NAMES))
_RANGES = st.just((Delete(b"/registry/nodes/", b"/registry/nodes0"),))
_TRANSACTIONS = st.lists(_PUTS | _DELETES, min_size=1, max_size=5, unique_by=lambda step: step.key).map(tuple)
steps = st.one_of(_TRANSACTIONS, _TRANSACTIONS, _RANGES, st.sampled_from([Revoke(1), Revoke(2)]))
histories = st.lists(steps, min_size=1, max_size=25)


def apply(client: EtcdClient, history: Sequence[Step], first_lease: int) -> Iterator[Record]:
    """Do what a history says, and yield what an agent records besides its events: leases."""
    leases = {number: first_lease + number for number in (1, 2)}
    granted: set[int] = set()
    for step in history:
        if isinstance(step, Revoke):
            if step.lease in granted:
                client.lease_revoke(leases[step.lease])
                granted.remove(step.lease)
                yield LeaseGone(leases[step.lease])
            continue
        for part in step:
            if isinstance(part, Put) and part.lease and part.lease not in granted:
                client.lease_grant(3600 + part.lease, leases[part.lease])
                granted.add(part.lease)
                yield LeaseGrant(leases[part.lease], 3600 + part.lease)
        client.txn(rpc.TxnRequest(success=[_operation(part, leases) for part in step]))


def _operation(part: Put | Delete, leases: dict[int, int]) -> rpc.RequestOp:
    if isinstance(part, Delete):
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=part.key, range_end=part.end))
    lease = leases.get(part.lease, 0)
    return rpc.RequestOp(request_put=rpc.PutRequest(key=part.key, value=part.value, lease=lease))


def watched(client: EtcdClient, first: int, last: int, begin_ms: int = 0) -> list[Revision]:
    """Return the revisions from ``first`` to ``last`` as etcd's watch tells them, a second after another.

    ``begin_ms`` is the time of ``first``, milliseconds since 1970.
    """
    if last < first:
        return []
    events: list[rpc.Event] = []
    watch = client.watch(client.endpoints[0], first)
    for response in watch:
        events += response.events
        if events and events[-1].kv.mod_revision >= last and not response.fragment:
            watch.cancel()
            break
    return [
        Revision(revision, begin_ms + (revision - first) * 1000, tuple(_event(event) for event in group))
        for revision, group in itertools.groupby(events, lambda event: event.kv.mod_revision)
    ]


def _event(event: rpc.Event) -> Event:
    kv = event.kv
    if event.type == rpc.Event.DELETE:
        return Event(False, kv.key)
    return Event(True, kv.key, kv.value, kv.create_revision, kv.version, kv.lease)


type Contents = dict[bytes, tuple[bytes, int, int, int, int]]


def contents(client: EtcdClient, revision: int) -> Contents:
    """Return every key at a revision: value, create and mod revision, version, lease."""
    return {
        kv.key: (kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
        for page in client.pages(ALL, ALL, revision=revision)
        for kv in page.kvs
    }


def save_snapshot(client: EtcdClient, path: Path) -> None:
    """Write the database as etcd streams it, its trailer included."""
    path.write_bytes(b"".join(client.snapshot(client.endpoints[0])))
