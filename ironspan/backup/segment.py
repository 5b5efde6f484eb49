# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the log: segments of encrypted frames in one hash chain, with one writer at a time."""

from __future__ import annotations

import base64
import collections
import collections.abc
import dataclasses
import functools
import time

from ironspan.backup import crypto
from ironspan.backup.errors import ChainError, PositionConflict
from ironspan.backup.frame import Header, associated, build
from ironspan.backup.names import Names
from ironspan.backup.proof import Proof
from ironspan.backup.records import Coalesced, Event, Progress, Record, Revision, encode
from ironspan.backup.sequence import Place
from ironspan.backup.store import APPEND_MAX, BLOCKS_MAX, Store
from ironspan.backup.takeover import LogEnd, in_the_way
from ironspan.program.errors import AlreadyThere, LeaseLost, ProgramError

PLAIN_MAX = APPEND_MAX - 256 * 1024
"""Plain bytes of a frame: what does not compress has to fit into one append, header and tag included."""
SEGMENT_BYTES = 64 * 1024 * 1024
"""A taking-over writer reads the last segment whole; this is a second of that on a link of 500 Mbit/s."""
SEGMENT_SECONDS = 3600
_EVENT_BYTES = 64
"""More than the fixed fields of a record or event take."""


class SegmentWriter:
    """Appends records to one segment. ``begin`` makes it.

    After a retryable ServiceError from ``append`` or ``flush`` the frames are kept: call ``flush`` until it
    returns, and never append the same records again. A second sending of a frame is the same bytes for the
    same position, so it lands once. After any other error the writer is of no use: take over and start over.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        wrapped: tuple[str, bytes],
        data_key: bytes,
        end: LogEnd,
        proof: Proof,
    ):
        self.name = name
        self.revision = end.revision
        """The last complete revision that was given to ``append``."""
        self.durable = end.revision
        """The last complete revision that is in the store."""
        self.size = 0
        self.frames = 0
        self._store = store
        self._proof = proof
        self._data_key = data_key
        self._first: dict[str, str] = {
            "before": end.name,
            "key_version": wrapped[0],
            "wrapped_key": base64.b64encode(wrapped[1]).decode(),
        }
        self._end = end
        self._begun = time.monotonic()
        self._sealed = False
        self._previous = end.digest
        self._time_ms, self._behind = end.time_ms, end.behind
        self._partial = False
        self._pending: collections.deque[tuple[bytes, int]] = collections.deque()

    @classmethod
    def begin(
        cls, store: Store, keys: crypto.Keys, names: Names, epoch: int, end: LogEnd, after: int | None = None
    ) -> SegmentWriter:
        """Make the next segment of a log.

        Args:
            store: where it goes.
            keys: wrap its data key.
            names: of the site.
            epoch: the newest one.
            end: where the log ends: of ``take_over``, or of the writer before.
            after: the revision that the log goes on behind, where that is not ``end.revision``: the first
                segment of an epoch, or behind a gap (which readers then name).

        Raises:
            LeaseLost: another writer has begun one.
        """
        after = end.revision if after is None else after
        if after < end.revision:
            raise ProgramError(f"The log in {store.name} is at revision {end.revision} already, not {after}.")
        name = names.log(epoch, after + 1, end.number + 1)
        data_key = crypto.new_data_key()
        wrapped = keys.wrap(data_key)
        try:
            store.create_append(name)
        except AlreadyThere as error:
            raise LeaseLost(f"{store.name}: another writer has begun {name}.") from error
        if in_the_way(store, names, epoch, name, end.number + 1):
            raise LeaseLost(f"{store.name}: another writer has begun a segment beside {name}.")
        begun = end._replace(revision=after, number=end.number + 1)
        return cls(store, name, wrapped, data_key, begun, names.proof)

    @property
    def full(self) -> bool:
        """Whether the next records belong into another segment; never between parts of one revision."""
        spent = (
            self.size >= SEGMENT_BYTES
            or self.frames >= BLOCKS_MAX - 2
            or time.monotonic() - self._begun >= SEGMENT_SECONDS
        )
        return spent and not self._partial

    def append(self, records: collections.abc.Sequence[Record]) -> int:
        """Put records into the store, in as many frames as they need, and return the durable revision.

        What an earlier call left is sent first; if that fails, these records are kept as well.

        Args:
            records: with revisions that follow without gap on what was appended before.

        Raises:
            ChainError: a revision is missing (``gap``); nothing of these records was taken.
            ProgramError: they do not belong here, or an event is larger than an append.
            LeaseLost: another writer has taken over.
            ServiceError: the store failed; see above.
        """
        place = Place(self.revision, self._partial)
        for record in records:
            place.follow(record)
        for batch in list(_batches(records)):
            first = self.revision + 1
            place = Place(self.revision, self._partial)
            for record in batch:
                place.follow(record)
                self._time_ms = max(self._time_ms, getattr(record, "time_ms", 0))
                match record:
                    case Revision(more=False, behind=behind):
                        self._behind = behind
                    case Progress():
                        self._behind = False
            self.revision, self._partial = place.revision, place.partial
            self._add(first, functools.partial(self._encrypt, self.frames, encode(batch)))
        self.flush()
        return self.durable

    def flush(self) -> None:
        """Send what an earlier call left. Raises as ``append``."""
        while self._pending:
            data, revision = self._pending[0]
            self._send(data)
            self._pending.popleft()
            self.size += len(data)
            self.durable = revision

    def seal(self, holder: str = "") -> LogEnd:
        """End the segment and return where the log ends; calling again after a failure is safe.

        Args:
            holder: who seals, for people who read the log.
        """
        if not self._sealed:
            if self.frames:
                self._end = self._end._replace(name=self.name)
            self._add(self.revision + 1, None, holder)
            self._sealed = True
        self.flush()
        if (length := self._store.size(self.name)) < self.size:
            raise self._lost(length)
        if self._end.name != self.name:
            return self._end
        return self._end._replace(
            digest=self._previous, revision=self.revision, time_ms=self._time_ms, behind=self._behind
        )

    def _add(
        self, first: int, sealing: collections.abc.Callable[[bytes], bytes] | None, holder: str = ""
    ) -> None:
        if self._sealed:
            raise ProgramError(f"{self.name} is sealed.")
        header = Header(
            self.frames,
            self._previous if self.frames or sealing else "",
            first,
            self.revision,
            self._time_ms,
            sealed=sealing is None,
            holder=holder,
            behind=self._behind,
            **(self._first if self.frames == 0 and sealing else {}),
        )
        data, self._previous = build(header, self.name, self._proof, sealing)
        self.frames += 1
        self._pending.append((data, self.revision))

    def _encrypt(self, number: int, batch: bytes, head: bytes) -> bytes:
        return crypto.seal(self._data_key, number, batch, associated(self.name, head))

    def _send(self, data: bytes) -> None:
        end = self.size + len(data)
        try:
            length = self._store.append(self.name, data, self.size)
        except PositionConflict as conflict:
            if conflict.actual < self.size:
                raise self._lost(conflict.actual) from conflict
            landed = b"".join(self._store.read(self.name, self.size, len(data)))
            if landed != data:
                raise LeaseLost(
                    f"{self._store.name}: another writer has taken over; {self.name} is "
                    f"{conflict.actual} bytes long, not {self.size}."
                ) from conflict
            return
        if length != end:
            raise self._lost(length)

    def _lost(self, length: int) -> ChainError:
        return ChainError(
            f"{self._store.name} acknowledged {self.size} bytes of {self.name} and has {length}.",
            "Nothing that this store says can be relied on until it is known why.",
            altered=self.name,
        )


def _batches(records: collections.abc.Iterable[Record]) -> collections.abc.Iterator[list[Record]]:
    """Yield the records in batches that fit into one append each; a large revision in parts."""
    batch: list[Record] = []
    size = 0
    for record in _split(records):
        needed = _bytes(record)
        if batch and size + needed > PLAIN_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += needed
    if batch:
        yield batch


def _split(records: collections.abc.Iterable[Record]) -> collections.abc.Iterator[Record]:
    for record in records:
        if not isinstance(record, Revision) or _bytes(record) <= PLAIN_MAX:
            yield record
            continue
        part: list[Event] = []
        size = _EVENT_BYTES
        for event in record.events:
            needed = _event_bytes(event)
            if needed + _EVENT_BYTES > PLAIN_MAX:
                raise ProgramError(
                    f"Revision {record.revision} has a value of {len(event.value)} bytes; one append holds "
                    f"{PLAIN_MAX}.",
                    "Lower --max-request-bytes of etcd; its default is 1.5 MiB.",
                )
            if part and size + needed > PLAIN_MAX:
                yield dataclasses.replace(record, events=tuple(part), more=True)
                part, size = [], _EVENT_BYTES
            part.append(event)
            size += needed
        yield dataclasses.replace(record, events=tuple(part))


def _bytes(record: Record) -> int:
    match record:
        case Revision(events=events):
            return _EVENT_BYTES + sum(_event_bytes(event) for event in events)
        case Coalesced(key=key):
            return _EVENT_BYTES + len(key)
    return _EVENT_BYTES


def _event_bytes(event: Event) -> int:
    return _EVENT_BYTES + len(event.key) + len(event.value)
