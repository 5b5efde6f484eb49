# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Leaves out what nobody will miss: heartbeats of nodes that the same append replaces."""

from __future__ import annotations

from collections.abc import Sequence

from ironspan.backup.records import Coalesced, Record, Revision

NODE_LEASES = b"/registry/leases/kube-node-lease/"


def coalesce(records: Sequence[Record]) -> list[Record]:
    """Replace puts of node leases by ``Coalesced`` where a later put of the same key follows.

    Only transactions of exactly one such put, of a key that exists already and has no etcd lease: replay
    writes the key's value of the time again, so revisions, versions and leases stay exact.

    Args:
        records: what one append takes, in order.

    Returns:
        As many records, in the same order.
    """
    replaced: set[bytes] = set()
    result: list[Record] = []
    for record in reversed(records):
        kept = record
        if isinstance(record, Revision):
            for event in record.events:
                if not event.key.startswith(NODE_LEASES):
                    continue
                lone = len(record.events) == 1 and not record.more
                if lone and event.put and event.key in replaced and event.version > 1 and not event.lease:
                    kept = Coalesced(record.revision, record.time_ms, event.key)
                if event.put:
                    replaced.add(event.key)
        result.append(kept)
    result.reverse()
    return result
