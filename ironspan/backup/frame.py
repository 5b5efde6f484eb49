# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Frames, the units of a log segment: what one append wrote (docs/backup-format.md)."""

from __future__ import annotations

import collections.abc
import dataclasses
import hashlib
import json
import struct
import typing as t

from ironspan.backup.errors import ChainError
from ironspan.backup.store import APPEND_MAX, Store

MAGIC = b"ISL1"
_PREAMBLE = struct.Struct(">4sII")  # magic, bytes of the header, bytes of the body
HEADER_MAX = 64 * 1024
SEAL_MAX = 4 * 1024
"""More than a frame takes that seals."""


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The plain part of a frame, JSON.

    ``first`` is the revision that the log needed next before this frame and ``last`` the last one that is
    complete with it, so ``last`` is ``first - 1`` in a frame that completes none.
    """

    number: int
    """Of the frame in its segment, from 0; the nonce of its body."""
    previous: str
    """SHA-256 of the frame before in the log, in this segment or the one before; empty in the first one."""
    first: int
    last: int
    time_ms: int
    """The newest time that this frame or one before it says, milliseconds since 1970."""
    before: str = ""
    """In a segment's first frame: the name of the segment that has the frame before."""
    key_version: str = ""
    wrapped_key: str = ""
    """In a segment's first frame with a body: the data key, wrapped, in base64."""
    sealed: bool = False
    """Nothing follows in this segment. Such a frame has no body."""
    holder: str = ""
    """In a frame that seals: who did."""
    behind: bool = False
    """etcd had newer revisions than ``last`` at ``time_ms``: the log was catching up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """A frame that is whole: its SHA-256, and the hash chain up to it was right."""

    header: Header
    associated: bytes
    """What the tag of the body covers besides it: the header's own bytes."""
    body: bytes
    digest: str
    end: int
    """The segment's length with this frame, bytes."""


def build(
    header: Header, sealing: collections.abc.Callable[[bytes], bytes] | None = None
) -> tuple[bytes, str]:
    """Return a frame's bytes and their SHA-256.

    Args:
        header: its header.
        sealing: makes the body, of the header's bytes; None for a frame without one.
    """
    fields = {
        key: value
        for key, value in dataclasses.asdict(header).items()
        if value or key in ("number", "previous", "first", "last", "time_ms")
    }
    head = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    body = sealing(head) if sealing else b""
    data = _PREAMBLE.pack(MAGIC, len(head), len(body)) + head + body
    return data, hashlib.sha256(data).hexdigest()


def associated(name: str, head: bytes) -> bytes:
    """Return what the tag of a frame's body covers besides it."""
    return name.encode() + b"\n" + head


class Torn(Exception):
    """The segment ends in the middle of a frame: an append that was never acknowledged, or a cut."""


def read_frames(store: Store, name: str) -> collections.abc.Iterator[Frame]:
    """Yield the frames of a segment, hash chain, numbers and revisions verified.

    Args:
        store: where the segment is.
        name: of the segment.

    Raises:
        ChainError: the bytes are not those that were written.
        Torn: they end in the middle of a frame; all that was yielded is good.
        StoreError: the segment cannot be read.
    """
    source = _Source(store.read(name))
    before: Frame | None = None
    while (preamble := source.take(_PREAMBLE.size)) is not None:
        frame = _frame(source, preamble, name)
        _check(frame, before, name)
        yield frame
        before = frame


def last_frame(store: Store, name: str) -> tuple[Frame | None, bool]:
    """Return a segment's last whole frame, and whether the segment ends with it.

    It does not after a torn append, or where the bytes are not those that were written.
    """
    last: Frame | None = None
    try:
        for frame in read_frames(store, name):
            last = frame
    except (Torn, ChainError):
        return last, False
    return last, True


def first_header(store: Store, name: str) -> Header | None:
    """Return the header of a segment's first frame, or None when there is no frame. Not yet verified.

    Raises:
        ChainError: what is there is no header.
        StoreError: the segment cannot be read.
    """
    source = _Source(store.read(name, 0, _PREAMBLE.size + HEADER_MAX))
    try:
        preamble = source.take(_PREAMBLE.size)
        return _header(source, preamble, name)[0] if preamble is not None else None
    except Torn:
        return None


def seal_of(store: Store, name: str) -> Frame | None:
    """Return the frame that seals a segment, found from its end, or None. Its chain is not yet verified."""
    size = store.size(name)
    start = max(0, size - SEAL_MAX)
    tail = b"".join(store.read(name, start))
    at = tail.rfind(MAGIC)
    if at < 0:
        return None
    source = _Source(iter([tail[at:]]))
    try:
        frame = _frame(source, source.take(_PREAMBLE.size) or b"", name)
    except (Torn, ChainError):
        return None
    header = frame.header
    whole = start + at + frame.end == size and header.last == header.first - 1
    return dataclasses.replace(frame, end=size) if whole and header.sealed else None


def end_of(store: Store, name: str) -> int:
    """Return the last revision that a segment has, 0 when nothing was written to it."""
    last = seal_of(store, name) or last_frame(store, name)[0]
    return last.header.last if last is not None and (last.header.number or not last.header.sealed) else 0


def end_of_log(store: Store, segments: collections.abc.Iterable[tuple[int, str]]) -> int:
    """Return the last revision that an epoch's log has, 0 when nothing was written to it.

    Args:
        store: where it is.
        segments: their numbers and names. Several may have the same number: of writers that began at once.
    """
    furthest = written = 0
    for number, name in sorted(segments, reverse=True):
        if number < written:
            break
        if last := end_of(store, name):
            furthest, written = max(furthest, last), number
    return furthest


def _header(source: _Source, preamble: bytes, name: str) -> tuple[Header, bytes, int]:
    start = source.at - _PREAMBLE.size
    magic, head_size, body_size = _PREAMBLE.unpack(preamble)
    if magic != MAGIC or head_size > HEADER_MAX or body_size > APPEND_MAX:
        raise altered(name, f"at byte {start} no frame begins")
    head = source.take(head_size)
    if head is None:
        raise Torn
    try:
        header = Header(**json.loads(head))
        if any(type(value) is not kind for value, kind in zip(_values(header), _KINDS, strict=True)):
            raise ValueError("a field has the wrong type")
    except (TypeError, ValueError) as error:
        raise altered(name, f"the frame at byte {start} has no header: {error}") from error
    return header, head, body_size


def _frame(source: _Source, preamble: bytes, name: str) -> Frame:
    header, head, body_size = _header(source, preamble, name)
    body = source.take(body_size)
    if body is None:
        raise Torn
    digest = hashlib.sha256(preamble + head + body).hexdigest()
    return Frame(header, head, body, digest, source.at)


def _check(frame: Frame, before: Frame | None, name: str) -> None:
    header = frame.header
    if header.number != (before.header.number + 1 if before else 0):
        raise altered(name, f"frame {header.number} stands where another one should")
    if bool(frame.body) is header.sealed:
        raise altered(name, f"frame {header.number} has a body that it should not have, or none")
    if header.last < header.first - 1 or (header.sealed and header.last != header.first - 1):
        raise altered(name, f"frame {header.number} cannot go from {header.first} to {header.last}")
    if before is None:
        return
    if header.previous != before.digest:
        raise altered(
            name,
            f"frame {before.header.number} (revisions {before.header.first} to {before.header.last}) is not "
            f"the one that frame {header.number} follows",
        )
    if before.header.sealed:
        raise altered(name, "something follows the frame that seals it")
    if header.first != before.header.last + 1:
        raise altered(name, f"frame {header.number} does not go on at revision {before.header.last + 1}")


def altered(name: str, what: str) -> ChainError:
    """Return the error for a segment that is not what was written."""
    return ChainError(
        f"{name} is not what was written: {what}.",
        "Use a point before it, or the copy in another store.",
        altered=name,
    )


_HINTS = t.get_type_hints(Header)
_KINDS = [_HINTS[field.name] for field in dataclasses.fields(Header)]


def _values(header: Header) -> list[object]:
    return [getattr(header, field.name) for field in dataclasses.fields(header)]


class _Source:
    """Takes exact numbers of bytes from a stream."""

    def __init__(self, chunks: collections.abc.Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = bytearray()
        self.at = 0

    def take(self, size: int) -> bytes | None:
        """Return the next ``size`` bytes, or None at the end. Raises Torn when there are fewer."""
        while len(self._buffer) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                if self._buffer:
                    raise Torn
                return None if size else b""
            self._buffer += chunk
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        self.at += size
        return taken
