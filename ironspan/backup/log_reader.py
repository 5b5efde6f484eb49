# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the log: verifies the chain of its frames, decrypts them, joins what was written in parts."""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses

from ironspan.backup import crypto
from ironspan.backup.errors import ChainError
from ironspan.backup.frame import Frame, Header, Torn, altered, associated, read_frames
from ironspan.backup.proof import SCHEMA
from ironspan.backup.records import Event, LeaseGone, LeaseGrant, Record, Revision, decode
from ironspan.backup.sequence import Place
from ironspan.backup.store import Store
from ironspan.program.errors import ProgramError


def data_key(keys: crypto.Keys, header: Header, name: str) -> bytes:
    """Return the data key that a segment's first header holds. Raises KeyMissing, or ChainError."""
    try:
        return keys.unwrap(header.key_version, base64.b64decode(header.wrapped_key, validate=True))
    except binascii.Error as error:
        raise altered(name, "its data key is not base64") from error


class SegmentReader:
    """Reads one segment.

    Args:
        store: where it is.
        keys: unwrap its data key.
        name: of the object.
        schema: of its frames.
    """

    def __init__(self, store: Store, keys: crypto.Keys, name: str, schema: int = SCHEMA) -> None:
        self.name = name
        self._schema = schema
        self._store = store
        self._keys = keys

    def frames(self, digest: str = "") -> collections.abc.Iterator[tuple[Frame, list[Record]]]:
        """Yield the frames with their records, verified: chain, tag, revisions without gap.

        Args:
            digest: SHA-256 of the last frame that counts (chain.Link): something signed says it, and all
                before it follows from it. Without one the segment is read to its end, signed or not, where
                an append that was never acknowledged may be cut off.

        Raises:
            ChainError: the segment is not what was written, or ends before that frame.
            KeyMissing: the key version is not there.
            ServiceError: it cannot be read.
        """
        key = b""
        place: Place | None = None
        try:
            for frame in read_frames(self._store, self.name, self._schema):
                if not frame.header.sealed and not key:
                    key = data_key(self._keys, frame.header, self.name)
                place = place or Place(frame.header.first - 1)
                yield frame, self._records(frame, key, place)
                if digest and frame.digest == digest:
                    return
        except Torn:
            pass
        if digest:
            revision = place.revision if place else 0
            raise altered(self.name, f"it ends behind revision {revision}, before its last frame")

    def _records(self, frame: Frame, key: bytes, place: Place) -> list[Record]:
        if frame.header.sealed:
            return []
        covered = associated(self.name, frame.associated)
        try:
            records = decode(crypto.unseal(key, frame.header.number, frame.body, covered))
            for record in records:
                place.follow(record)
        except ProgramError as error:
            raise altered(
                self.name,
                f"frame {frame.header.number} (revisions {frame.header.first} to {frame.header.last}): "
                f"{error.message}",
            ) from error
        if place.revision != frame.header.last:
            raise altered(self.name, f"frame {frame.header.number} ends at revision {place.revision}")
        return records


def read_log(
    store: Store,
    keys: crypto.Keys,
    segments: collections.abc.Iterable[tuple[str, str]],
    after: int,
    *,
    until: int | None = None,
    until_ms: int | None = None,
    schema: int = SCHEMA,
) -> collections.abc.Iterator[Record]:
    """Yield what happened behind a revision, each transaction as one Revision.

    Leases of the whole segments are among it, also those of earlier revisions: a lease is not part of any
    revision, and one that the snapshot has already is to be left as it is.

    Args:
        store: where the segments are.
        keys: unwrap their data keys.
        segments: names of the segments in order, with the SHA-256 of the last frame of each that counts;
            an empty one for what is read to its end (chain.Chain.links).
        after: the revision of the snapshot.
        until: the last revision wanted.
        until_ms: end before the first record that says a later time (milliseconds since 1970). Where the
            clock was set back, what it repeated counts as later.
        schema: of the segments' frames.

    Raises:
        ChainError: the log is not what was written, or revisions are missing.
        KeyMissing: a key version is not there.
        ServiceError: it cannot be read.
    """
    reached = after
    for name, digest in segments:
        # What a lost writer had not completed, the next one wrote again from its beginning.
        parts: list[Event] = []
        for frame, records in SegmentReader(store, keys, name, schema).frames(digest):
            if frame.header.first > reached + 1:
                raise ChainError(
                    f"Revisions {reached + 1} to {frame.header.first - 1} are missing before {name}.",
                    f"Ask for revision:{reached} or an earlier point.",
                    gap=(reached + 1, frame.header.first - 1),
                )
            reached = max(reached, frame.header.last)
            for record in records:
                if isinstance(record, LeaseGrant | LeaseGone):
                    yield record
                    continue
                if (until is not None and record.revision > until) or (
                    until_ms is not None and record.time_ms > until_ms
                ):
                    return
                if isinstance(record, Revision):
                    parts.extend(record.events)
                    if record.more:
                        continue
                    record, parts = dataclasses.replace(record, events=tuple(parts)), []
                if record.revision > after:
                    yield record
                if record.revision == until:
                    return
