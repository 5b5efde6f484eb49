# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where segments end: with the last frame that the site signed, whatever somebody else put behind it."""

from __future__ import annotations

import collections.abc
import dataclasses
import logging

from ironspan.backup.errors import ChainError
from ironspan.backup.frame import (
    HEADER_MAX,
    Frame,
    Torn,
    first_header,
    frame_at,
    frames_from,
    magic_of,
    read_frames,
)
from ironspan.backup.proof import UNSIGNED_SCHEMA, Proof
from ironspan.backup.store import Store

LOG = logging.getLogger(__name__)
SEAL_MAX = 4 * 1024
"""More than a frame takes that seals."""
_SEARCH_BYTES = 1 << 20


def last_frame(store: Store, name: str, proof: Proof) -> tuple[Frame | None, bool]:
    """Return a segment's last frame that counts, and whether the segment ends with it.

    It does not after a torn append, where the bytes are not those that were written, or where somebody
    else wrote behind it.
    """
    last: Frame | None = None
    clean = True
    try:
        for frame in read_frames(store, name, proof.schema):
            last = frame
    except (Torn, ChainError):
        clean = False
    if last is None or last.proven(name, proof):
        return last, clean
    # Seldom: each signature is looked at, and the last one that is right stands for all before it.
    proven: Frame | None = None
    try:
        for frame in read_frames(store, name, proof.schema):
            if frame.proven(name, proof):
                proven = frame
    except (Torn, ChainError):
        pass
    return proven, False


def seal_of(store: Store, name: str, proof: Proof) -> Frame | None:
    """Return the frame that seals a segment, found from its end, or None."""
    size = store.size(name)
    start = max(0, size - SEAL_MAX)
    tail = b"".join(store.read(name, start))
    at = tail.rfind(magic_of(proof.schema))
    frame = frame_at(tail, at, name, proof.schema) if at >= 0 else None
    if frame is None or not frame.proven(name, proof):
        return None
    header = frame.header
    whole = start + at + frame.end == size and header.last == header.first - 1
    return dataclasses.replace(frame, end=size) if whole and header.sealed else None


def end_of(store: Store, name: str, proof: Proof) -> int:
    """Return the last revision that a segment has, 0 when nothing was written to it."""
    last = seal_of(store, name, proof)
    if last is None:
        try:
            begun = first_header(store, name, proof)
        except ChainError:
            begun = None
        last = last_frame(store, name, proof)[0] if begun is not None else None
    return last.header.last if last is not None and (last.header.number or not last.header.sealed) else 0


def end_of_log(store: Store, segments: collections.abc.Iterable[tuple[int, str]], proof: Proof) -> int:
    """Return the last revision that an epoch's log has, 0 when nothing was written to it.

    Args:
        store: where it is.
        segments: their numbers and names. Several may have the same number: of writers that began at once.
        proof: says whose frames count.
    """
    furthest = written = 0
    for number, name in sorted(segments, reverse=True):
        if number < written:
            break
        if last := end_of(store, name, proof):
            furthest, written = max(furthest, last), number
    return furthest


def is_torn(store: Store, name: str, at: int, schema: int) -> bool:
    """Say whether a segment ends in the middle of the frame that begins at a byte."""
    try:
        for _ in frames_from(store, name, at, schema):
            return False
    except Torn:
        return True
    except ChainError:
        return False
    return False


def holds_ours(store: Store, name: str, proof: Proof, offset: int = 0) -> bool:
    """Say whether a frame of the site is anywhere from a byte on, though nothing leads to it.

    It tells a segment of ours that was damaged from an object that somebody else made. A frame that only
    seals, which a writer puts behind whatever has a segment's name, does not make the object ours.
    """
    if proof.schema == UNSIGNED_SCHEMA:
        return True
    magic, buffer = magic_of(proof.schema), b""
    longest = HEADER_MAX + 1024
    source = iter(store.read(name, offset))
    ended = False
    while not ended:
        while len(buffer) < _SEARCH_BYTES and not ended:
            chunk = next(source, None)
            ended = chunk is None
            buffer += chunk or b""
        at = buffer.find(magic)
        while at >= 0 and (ended or at + longest <= len(buffer)):
            frame = frame_at(buffer, at, name, proof.schema, whole=False)
            if frame is not None and frame.proven(name, proof):
                header = frame.header
                if header.number or not header.sealed:
                    return True
            at = buffer.find(magic, at + 1)
        keep = at if at >= 0 else len(buffer) - len(magic) + 1
        buffer = buffer[max(keep, 0) :]
    return False
