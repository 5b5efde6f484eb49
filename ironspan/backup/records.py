# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the log says happened in etcd, and its bytes (docs/backup-format.md)."""

from __future__ import annotations

import collections.abc
import dataclasses
import struct
import zlib

from ironspan.backup.errors import ChainError

PLAIN_MAX = 64 * 1024 * 1024
"""Bytes that one batch may unpack to; a damaged one does not take the reader's memory."""
_LEVEL = 1
"""Values are certificates, JSON and protobuf: higher levels cost four times as much for a tenth less."""

_COALESCED, _GONE, _GRANT, _PROGRESS, _REVISION = range(1, 6)
_KIND = struct.Struct(">B")
_REVISION_HEAD = struct.Struct(">QQBI")  # revision, time, more, events
_EVENT_HEAD = struct.Struct(">BIIQQq")  # put, key bytes, value bytes, create revision, version, lease
_GRANT_BODY = struct.Struct(">qQ")  # lease, seconds
_GONE_BODY = struct.Struct(">q")  # lease
_COALESCED_HEAD = struct.Struct(">QQI")  # revision, time, key bytes
_PROGRESS_BODY = struct.Struct(">QQ")  # revision, time


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A key that a transaction wrote (``put``) or deleted; a deletion has neither value nor counts."""

    put: bool
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    version: int = 0
    lease: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Revision:
    """All events of one transaction, in order.

    ``time_ms`` is when the agent saw it (milliseconds since 1970): etcd does not keep when it happened.
    ``more`` says that the next Revision in the log has further events of the same transaction; a reader
    gets them joined. A transaction may be larger than what one append holds.
    ``behind`` says that etcd had newer revisions when it gave this one: the log was catching up.
    """

    revision: int
    time_ms: int
    events: tuple[Event, ...]
    more: bool = False
    behind: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseGrant:
    """A lease and its granted seconds, before the first event that uses it."""

    id: int
    ttl_s: int


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseGone:
    """A lease that ended; what it deleted follows as an ordinary revision."""

    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Coalesced:
    """A transaction that wrote one key, whose value a later one of the same append replaces.

    Replay writes any value, so that revisions and versions stay exact.
    """

    revision: int
    time_ms: int
    key: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """etcd was at this revision and the log lacks nothing up to it."""

    revision: int
    time_ms: int


type Record = Revision | LeaseGrant | LeaseGone | Coalesced | Progress


def encode(records: collections.abc.Iterable[Record]) -> bytes:
    """Return the compressed bytes of a batch of records."""
    out: list[bytes] = []
    for record in records:
        match record:
            case Revision(revision, time_ms, events, more, behind):
                flags = more | behind << 1
                out.append(_KIND.pack(_REVISION) + _REVISION_HEAD.pack(revision, time_ms, flags, len(events)))
                for event in events:
                    out.append(
                        _EVENT_HEAD.pack(
                            event.put,
                            len(event.key),
                            len(event.value),
                            event.create_revision,
                            event.version,
                            event.lease,
                        )
                    )
                    out.append(event.key)
                    out.append(event.value)
            case Coalesced(revision, time_ms, key):
                out.append(_KIND.pack(_COALESCED) + _COALESCED_HEAD.pack(revision, time_ms, len(key)) + key)
            case LeaseGrant(lease, seconds):
                out.append(_KIND.pack(_GRANT) + _GRANT_BODY.pack(lease, seconds))
            case LeaseGone(lease):
                out.append(_KIND.pack(_GONE) + _GONE_BODY.pack(lease))
            case Progress(revision, time_ms):
                out.append(_KIND.pack(_PROGRESS) + _PROGRESS_BODY.pack(revision, time_ms))
    return zlib.compress(b"".join(out), _LEVEL)


def decode(data: bytes) -> list[Record]:
    """Return the records of a batch.

    Raises:
        ChainError: the bytes are no batch that ``encode`` made.
    """
    cursor = _Cursor(_unpack(data))
    records: list[Record] = []
    while cursor.left():
        (kind,) = cursor.take(_KIND)
        if kind == _REVISION:
            records.append(_revision(cursor))
        elif kind == _COALESCED:
            revision, time_ms, size = cursor.take(_COALESCED_HEAD)
            records.append(Coalesced(revision, time_ms, cursor.bytes(size)))
        elif kind == _GRANT:
            records.append(LeaseGrant(*cursor.take(_GRANT_BODY)))
        elif kind == _GONE:
            records.append(LeaseGone(*cursor.take(_GONE_BODY)))
        elif kind == _PROGRESS:
            records.append(Progress(*cursor.take(_PROGRESS_BODY)))
        else:
            raise ChainError(f"A batch of records has one of the unknown kind {kind}.")
    return records


def _revision(cursor: _Cursor) -> Revision:
    revision, time_ms, flags, count = cursor.take(_REVISION_HEAD)
    events = []
    for _ in range(count):
        put, key_size, value_size, create_revision, version, lease = cursor.take(_EVENT_HEAD)
        events.append(
            Event(
                _flag(put), cursor.bytes(key_size), cursor.bytes(value_size), create_revision, version, lease
            )
        )
    return Revision(revision, time_ms, tuple(events), bool(flags & 1), _flag(flags >> 1))


def _flag(value: int) -> bool:
    if value > 1:
        raise ChainError(f"A batch of records says {value} where it may say 0 or 1.")
    return bool(value)


def _unpack(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, PLAIN_MAX)
    except zlib.error as error:
        raise ChainError(f"A batch of records does not unpack: {error}.") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ChainError("A batch of records does not end where it says.")
    return plain


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> bool:
        return self._at < len(self._data)

    def take(self, shape: struct.Struct) -> tuple[int, ...]:
        return shape.unpack(self.bytes(shape.size))

    def bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ChainError("A batch of records ends in the middle of one.")
        taken = self._data[self._at : end]
        self._at = end
        return taken
