# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Replays the log into the database of a snapshot, so that it is what etcd had at a later revision.

Every event becomes the row that etcd wrote for it, with the same revision, create revision, version and lease
(etcd's mvcc.storeTxnWrite and revision.go; mvccpb.KeyValue), so hashes over the database come out the same.
How many operations one transaction had does not matter, nor how large they were together.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ironspan.backup.errors import ChainError
from ironspan.backup.rebuild.boltfile import BoltFile
from ironspan.backup.rebuild.bolttree import Tree
from ironspan.backup.records import Coalesced, Event, LeaseGone, LeaseGrant, Record, Revision

BATCH_RECORDS = 1000
HELD_RECORDS = 100_000
"""More than one flush has: what waits this long for a later value does without."""
UNKNOWN_LEASE_SECONDS = 3600
"""For a lease whose grant the log lacks: its keys must end some day; an hour is what events live."""
_KEY, _LEASE, _META = b"key", b"lease", b"meta"
_COMPACTIONS = (b"scheduledCompactRev", b"finishedCompactRev")
_REVISION_KEY = struct.Struct(">QcQ")
_LEASE_KEY = struct.Struct(">Q")
_UINT64 = 0xFFFFFFFFFFFFFFFF
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    ``revision`` is the last one that the database has then; ``fillers`` counts those whose value the log did
    not keep, ``unknown_leases`` those that were used without a grant.
    """

    revision: int
    revisions: int = 0
    events: int = 0
    fillers: int = 0
    leases: int = 0
    unknown_leases: int = 0


def replay(
    path: Path,
    records: Iterable[Record],
    beyond: Callable[[int, int], bool] = lambda revision, time_ms: False,
    progress: Callable[[int], None] = lambda revision: None,
) -> Replayed:
    """Add the revisions of a log to a database that nobody has open.

    Leases that ended stay with their time to live when something was attached to them: a key that still is at
    the point then goes when it runs out, and a lease without keys harms nobody. The file is as it was until
    the end.

    Args:
        path: the database, without a trailer.
        records: the log from any revision not behind the database's next one, also beyond the point: the
            value of a coalesced event comes later than it.
        beyond: says of a revision and its time (milliseconds since 1970) that it lies behind the point.
        progress: is told a revision now and then.

    Returns:
        What was added.

    Raises:
        ChainError: a revision is missing.
    """
    with BoltFile(path) as file:
        job = _Replay(file)
        held: list[Record] = []
        for batch in itertools.batched(records, BATCH_RECORDS):
            held += batch
            if _lacks_value(held) and len(held) < HELD_RECORDS:
                continue
            if not job.add(held, beyond):
                return job.finish()
            progress(job.revision)
            held = []
        job.add(held, beyond)
        return job.finish()


def last_revision(path: Path) -> int:
    """Return the last revision of a database that nobody has open; 1 when it is empty, as etcd says."""
    with BoltFile(path) as file:
        return _last_revision(file)


def seal(path: Path) -> str:
    """End the file with the SHA-256 of the database, as ``etcdutl snapshot restore`` wants it.

    Returns:
        The SHA-256 of the database, in hexadecimal.
    """
    with BoltFile(path) as file:
        size = file.size
    digest = hashlib.sha256()
    with path.open("r+b") as stream:
        left = size
        while left and (block := stream.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
        if left:
            raise ChainError(f"{path} ends {left} bytes before its last page.", "Fetch the snapshot again.")
        stream.write(digest.digest())
        stream.truncate()
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


class _Replay:
    def __init__(self, file: BoltFile) -> None:
        self._file = file
        self.revision = self._start = _last_revision(file)
        self._tree: Tree | None = None
        self._leases = dict(file.rows(_LEASE))
        self._lasting = set(self._leases)
        self._ended: set[bytes] = set()
        self._granted = self._events = self._fillers = self._unknown = 0

    def add(self, batch: Sequence[Record], beyond: Callable[[int, int], bool]) -> bool:
        """Add records; returns False when the point was reached."""
        within = _within(batch, beyond)
        fillers = _fill(batch, within)
        for position in range(within):
            record = batch[position]
            if isinstance(record, LeaseGrant):
                self._grant(_lease_key(record.id), record.id, record.ttl_s)
            elif isinstance(record, LeaseGone):
                self._end(_lease_key(record.id))
            elif isinstance(record, Coalesced):
                if self._next(record.revision):
                    self._write(record.revision, fillers.get(position, ()))
                    self._fillers += 1
            elif isinstance(record, Revision) and self._next(record.revision):
                self._write(record.revision, record.events)
        return within == len(batch)

    def finish(self) -> Replayed:
        """Make what was added part of the database."""
        roots = {}
        if self._tree is not None:
            roots[_KEY] = self._tree.finish()
        if self._granted:
            leases = self._file.new_tree()
            for key in sorted(self._leases):
                leases.add(key, self._leases[key])
            roots[_LEASE] = leases.finish()
        if roots:
            self._file.commit(roots)
        counts = self._events, self._fillers, self._granted, self._unknown
        return Replayed(self.revision, self.revision - self._start, *counts)

    def _grant(self, key: bytes, lease: int, seconds: int) -> None:
        # The log may repeat what the snapshot has, with the time that was left.
        if key not in self._leases or key in self._ended:
            self._leases[key] = b"\x08" + _varint(lease & _UINT64) + b"\x10" + _varint(seconds)
            self._ended.discard(key)
            self._granted += 1

    def _end(self, key: bytes) -> None:
        self._ended.add(key)
        if key not in self._lasting:
            self._leases.pop(key, None)

    def _next(self, revision: int) -> bool:
        """Say whether a revision is to be added; those that the database has are not."""
        if revision <= self.revision:
            return False
        if revision != self.revision + 1:
            gap = self.revision + 1, revision - 1
            raise ChainError(
                f"The log lacks the revisions {gap[0]} to {gap[1]}.",
                f"Restore to revision {self.revision}, or from a later snapshot.",
                gap=gap,
            )
        return True

    def _write(self, revision: int, events: Sequence[Event]) -> None:
        if self._tree is None:
            self._tree = self._file.appender(_KEY)
        add, modified = self._tree.add, b"\x18" + _varint(revision)
        for sub, event in enumerate(events):
            name = _REVISION_KEY.pack(revision, b"_", sub)
            head = b"\n" + _varint(len(event.key)) + event.key
            if not event.put:
                add(name + b"t", head)
                continue
            row = head + b"\x10" + _varint(event.create_revision) + modified + b" " + _varint(event.version)
            if event.value:
                row += b"*" + _varint(len(event.value)) + event.value
            if event.lease:
                row += b"0" + _varint(event.lease & _UINT64)
                self._attach(_lease_key(event.lease), event.lease)
            add(name, row)
        self._events += len(events)
        self.revision = revision

    def _attach(self, key: bytes, lease: int) -> None:
        if key not in self._leases:
            self._grant(key, lease, UNKNOWN_LEASE_SECONDS)
            self._unknown += 1
        self._lasting.add(key)


def _within(batch: Sequence[Record], beyond: Callable[[int, int], bool]) -> int:
    """Return how many records of a batch come before the first that lies behind the point."""
    for position, record in enumerate(batch):
        if isinstance(record, Revision | Coalesced) and beyond(record.revision, record.time_ms):
            return position
    return len(batch)


def _lacks_value(batch: Sequence[Record]) -> bool:
    """Say whether a coalesced event comes before the one that made its value superfluous."""
    waiting: set[bytes] = set()
    for record in batch:
        if isinstance(record, Coalesced):
            waiting.add(record.key)
        elif waiting and isinstance(record, Revision):
            waiting.difference_update(event.key for event in record.events)
    return bool(waiting)


def _fill(batch: Sequence[Record], within: int) -> dict[int, tuple[Event, ...]]:
    """Return by position the event that stands for each coalesced one.

    Counts come from the later event that made its value superfluous. The value stays empty, as nobody sees
    it, unless that event lies behind the point: then the later value is the nearest that there is. Where the
    log ends before the later event, nothing stands for it: the key keeps the value that it had.
    """
    if not any(isinstance(record, Coalesced) for record in batch):
        return {}
    found: dict[int, tuple[Event, ...]] = {}
    later: dict[bytes, tuple[Event, bool]] = {}
    for position in range(len(batch) - 1, -1, -1):
        record = batch[position]
        if isinstance(record, Revision):
            for event in record.events:
                later[event.key] = event, position < within
        elif isinstance(record, Coalesced) and record.key in later:
            event, hidden = later[record.key]
            if event.version > 1:
                event = dataclasses.replace(event, version=event.version - 1)
                found[position] = (dataclasses.replace(event, value=b"") if hidden else event,)
                later[record.key] = event, position < within
    return found


def _last_revision(file: BoltFile) -> int:
    keys = [file.last_key(_KEY)]
    # The newest keys may have been deleted and compacted; then the compaction's revision is the last.
    keys += [value for key, value in file.rows(_META) if key in _COMPACTIONS]
    return max((int(_REVISION_KEY.unpack_from(key)[0]) for key in keys if key), default=1)


def _lease_key(lease: int) -> bytes:
    return _LEASE_KEY.pack(lease & _UINT64)


@functools.lru_cache(1 << 14)
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
