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
from ironspan.backup.proof import SCHEMA, SIGNATURE_BYTES, UNSIGNED_SCHEMA, WRITER, Proof
from ironspan.backup.store import APPEND_MAX, Store

KIND = "frame"
_MAGIC = {SCHEMA: b"ISL2", UNSIGNED_SCHEMA: b"ISL1"}
_PREAMBLE = struct.Struct(">4sII")  # magic, bytes of the header, bytes of the body
_SHA256_BYTES = 32
_REVISION_MAX = 1 << 62
HEADER_MAX = 64 * 1024


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
    signer: str = ""
    """Version of the key that signed the frame."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """A frame that is whole: its SHA-256, and the hash chain up to it was right.

    Whether it is signed is another matter (``proven``): the chain leads back from a frame that is, so one
    signature stands for all frames before it in the segment.
    """

    header: Header
    associated: bytes
    """What the tag of the body covers besides it: the header's own bytes."""
    body: bytes
    digest: str
    end: int
    """The segment's length with this frame, bytes."""
    signed: bytes = b""
    """What the signature is over besides the segment's name: the SHA-256 of what stands before it."""
    signature: bytes = b""

    def proven(self, name: str, proof: Proof) -> bool:
        """Say whether the site wrote this frame into the segment of a name."""
        return proof.verifies(WRITER, self.header.signer, self.signature, KIND, name, self.signed)


def build(
    header: Header,
    name: str,
    proof: Proof,
    sealing: collections.abc.Callable[[bytes], bytes] | None = None,
) -> tuple[bytes, str]:
    """Return a frame's bytes and its SHA-256: of all that stands before the body, a hash of which is there.

    Args:
        header: its header; who signs is filled in here.
        name: of the segment.
        proof: signs it.
        sealing: makes the body, of the header's bytes; None for a frame without one.
    """
    fields = {
        key: value
        for key, value in dataclasses.asdict(header).items()
        if value or key in ("number", "previous", "first", "last", "time_ms")
    }
    fields["signer"] = proof.signer(WRITER)
    head = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    body = sealing(head) if sealing else b""
    covered = _PREAMBLE.pack(_MAGIC[SCHEMA], len(head), len(body)) + head + hashlib.sha256(body).digest()
    before = covered + proof.sign(WRITER, KIND, name, hashlib.sha256(covered).digest())
    return before + body, hashlib.sha256(before).hexdigest()


def associated(name: str, head: bytes) -> bytes:
    """Return what the tag of a frame's body covers besides it."""
    return name.encode() + b"\n" + head


class Torn(Exception):
    """The segment ends in the middle of a frame: an append that was never acknowledged, or a cut."""


def read_frames(store: Store, name: str, schema: int = SCHEMA) -> collections.abc.Iterator[Frame]:
    """Yield the frames of a segment, hash chain, numbers and revisions verified, but no signature.

    They count up to one that is signed, or whose digest something signed names.

    Args:
        store: where the segment is.
        name: of the segment.
        schema: of its frames.

    Raises:
        ChainError: the bytes are not those that were written.
        Torn: they end in the middle of a frame; all that was yielded is good.
        ServiceError: the segment cannot be read.
    """
    before: Frame | None = None
    for frame in frames_from(store, name, 0, schema):
        _check(frame, before, name)
        yield frame
        before = frame


def frames_from(store: Store, name: str, at: int, schema: int) -> collections.abc.Iterator[Frame]:
    """Yield the frames from a byte on, one by one and not yet as a chain. Raises as ``read_frames``."""
    source = _Source(store.read(name, at))
    while (preamble := source.take(_PREAMBLE.size)) is not None:
        yield _frame(source, preamble, name, schema)


def first_frame(store: Store, name: str, proof: Proof) -> Frame | None:
    """Return a segment's first frame without its body, or None when there is no whole one.

    Raises:
        ChainError: what is there is no frame, or nobody of the site signed it.
        ServiceError: the segment cannot be read.
    """
    length = _PREAMBLE.size + HEADER_MAX + _SHA256_BYTES + SIGNATURE_BYTES
    source = _Source(store.read(name, 0, length))
    try:
        preamble = source.take(_PREAMBLE.size)
        frame = _head(source, preamble, name, proof.schema)[0] if preamble is not None else None
    except Torn:
        return None
    if frame is not None and not frame.proven(name, proof):
        raise altered(name, "its first frame is not signed by this site")
    return frame


def first_header(store: Store, name: str, proof: Proof) -> Header | None:
    """Return the header of a segment's first frame; see ``first_frame``."""
    frame = first_frame(store, name, proof)
    return frame.header if frame is not None else None


def _header(source: _Source, preamble: bytes, name: str, schema: int) -> tuple[Header, bytes, int]:
    start = source.at - _PREAMBLE.size
    magic, head_size, body_size = _PREAMBLE.unpack(preamble)
    if magic != _MAGIC[schema] or head_size > HEADER_MAX or body_size > APPEND_MAX:
        raise altered(name, f"at byte {start} no frame begins")
    head = source.take(head_size)
    if head is None:
        raise Torn
    try:
        header = Header(**json.loads(head))
        if any(type(value) is not kind for value, kind in zip(_values(header), _KINDS, strict=True)):
            raise ValueError("a field has the wrong type")
        if not all(-1 <= number < _REVISION_MAX for number in (header.first, header.last, header.time_ms)):
            raise ValueError("a number is out of all bounds")
    except (TypeError, ValueError, RecursionError) as error:
        raise altered(name, f"the frame at byte {start} has no header: {error}") from error
    return header, head, body_size


def _head(source: _Source, preamble: bytes, name: str, schema: int) -> tuple[Frame, bytes, int]:
    """Return a frame without its body, the body's SHA-256 (none in schema 1), and its size."""
    header, head, body_size = _header(source, preamble, name, schema)
    if schema == UNSIGNED_SCHEMA:
        return Frame(header, head, b"", "", source.at), b"", body_size
    behind = source.take(_SHA256_BYTES + SIGNATURE_BYTES)
    if behind is None:
        raise Torn
    body_digest, signature = behind[:_SHA256_BYTES], behind[_SHA256_BYTES:]
    signed = hashlib.sha256(preamble + head + body_digest).digest()
    digest = hashlib.sha256(preamble + head + behind).hexdigest()
    return Frame(header, head, b"", digest, source.at, signed, signature), body_digest, body_size


def _frame(source: _Source, preamble: bytes, name: str, schema: int) -> Frame:
    frame, body_digest, body_size = _head(source, preamble, name, schema)
    body = source.take(body_size)
    if body is None:
        raise Torn
    if schema == UNSIGNED_SCHEMA:
        digest = hashlib.sha256(preamble + frame.associated + body).hexdigest()
    elif hashlib.sha256(body).digest() != body_digest:
        raise altered(name, f"the body of frame {frame.header.number} is another one")
    else:
        digest = frame.digest
    return dataclasses.replace(frame, body=body, digest=digest, end=source.at)


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


def magic_of(schema: int) -> bytes:
    """Return what frames of a schema begin with."""
    return _MAGIC[schema]


def frame_at(data: bytes, at: int, name: str, schema: int, *, whole: bool = True) -> Frame | None:
    """Return the frame that begins at a byte of some data, or None when none does; ``end`` counts from there.

    Args:
        data: of a segment.
        at: where it may begin.
        name: of the segment.
        schema: of its frames.
        whole: with its body, which has to be there; without, only what its signature covers.
    """
    source = _Source(iter([data[at:] if whole else data[at : at + HEADER_MAX + 1024]]))
    try:
        preamble = source.take(_PREAMBLE.size) or b""
        return _frame(source, preamble, name, schema) if whole else _head(source, preamble, name, schema)[0]
    except (Torn, ChainError, struct.error):
        return None


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
