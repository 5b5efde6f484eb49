# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which snapshot and which part of the log lead to a point, or why none do."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import typing as t

from ironspan.backup.catalogue import Catalogue, Segment, Snapshot, newest_epoch
from ironspan.backup.crypto import Keys
from ironspan.backup.ends import end_of_log, holds_ours, is_torn, last_frame, seal_of
from ironspan.backup.errors import ChainError
from ironspan.backup.frame import Header, Torn, altered, first_header, read_frames
from ironspan.backup.log_reader import data_key
from ironspan.backup.manifest import Epoch
from ironspan.backup.proof import UNSIGNED_SCHEMA, Proof
from ironspan.backup.store import Item, Store
from ironspan.backup.written import headed, onward, written
from ironspan.program.errors import NotThere, ProgramError

SNAPSHOT_MARGIN_MS = 5000
"""A snapshot shows the database a little after the time it names: between request and first byte."""


UNSIGNED = "unsigned:"
"""Before a point: consent to what nobody signed."""
LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """What to restore: ``latest``, the last state not after a time (milliseconds), or a revision.

    ``unsigned`` is the consent to what was written before objects were signed, and to nothing else.
    """

    kind: t.Literal["latest", "time", "revision"] = "latest"
    value: int = 0
    unsigned: bool = False

    @classmethod
    def parse(cls, text: str) -> Point:
        """Return the point that ``latest``, ``time:RFC3339`` or ``revision:N`` names.

        Each may stand behind ``unsigned:``. Raises ProgramError.
        """
        if text.startswith(UNSIGNED):
            point = cls.parse(text.removeprefix(UNSIGNED))
            if not point.unsigned:
                return dataclasses.replace(point, unsigned=True)
        kind, _, value = text.partition(":")
        try:
            if text == "latest":
                return cls()
            if kind == "revision" and int(value) > 0:
                return cls("revision", int(value))
            if kind == "time":
                moment = datetime.datetime.fromisoformat(value)
                if moment.tzinfo is not None:
                    return cls("time", round(moment.timestamp() * 1000))
        except ValueError:
            pass
        raise ProgramError(
            f"{text!r} is no point to restore.",
            "Write latest, revision:123456, or time:2026-11-22T14:03:00Z with Z or an offset.",
        )

    def __str__(self) -> str:
        if self.kind == "time":
            text = f"time:{moment_text(self.value)}"
        else:
            text = "latest" if self.kind == "latest" else f"revision:{self.value}"
        return f"{UNSIGNED if self.unsigned else ''}{text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A segment of a chain: the last frame that counts, and where it leads."""

    segment: Segment
    digest: str
    """SHA-256 of the last frame that counts. Of the segment that is written now, as far as it was read."""
    revision: int
    time_ms: int
    sealed: bool = False
    """Nothing is written to it any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """What leads to a point: a snapshot and the log behind it."""

    epoch: Epoch
    snapshot: Snapshot
    links: tuple[Link, ...]
    point: Point

    @property
    def revision(self) -> int:
        """The last revision that the chain has; one for a point in time may stop before it."""
        if self.point.kind == "revision":
            return self.point.value
        return max(self.snapshot.revision, *(link.revision for link in self.links), 0)

    @property
    def time_ms(self) -> int:
        """The newest time that the chain has, milliseconds since 1970."""
        return max(self.snapshot.manifest.created * 1000, *(link.time_ms for link in self.links), 0)


def choose(store: Store, found: Catalogue, point: Point, keys: Keys | None = None) -> Chain:
    """Return what leads to a point. Reads first and last frames of the segments needed.

    The newest epoch counts. While it has no snapshot yet, ``latest`` is what its data was restored from.

    Args:
        store: where the catalogue was read.
        found: the catalogue.
        point: what to restore.
        keys: with them it is also tried whether everything can be decrypted.

    Raises:
        ChainError: revisions are missing (``gap``), or a segment is not what was written (``altered``).
        KeyMissing: a key version that is needed is not there.
        ProgramError: there is no backup of that point.
    """
    epoch, snapshot, point = _snapshot(found, point)
    links = tuple(_links(store, found, snapshot, point))
    chain = Chain(epoch, snapshot, links, point)
    if point.kind == "revision":
        reached = max(snapshot.revision, *(link.revision for link in links), 0)
        if reached < point.value:
            raise ProgramError(
                f"Epoch {epoch.epoch} was backed up to revision {reached}, not to {point.value}.",
                f"Ask for latest, or for revision:{reached}.",
            )
    if keys is not None:
        keys.unwrap(snapshot.manifest.key_version, snapshot.manifest.wrapped_key)
        for link in links:
            header = first_header(store, link.segment.name, found.names.proof)
            if header is not None and header.wrapped_key:
                data_key(keys, header, link.segment.name)
    return chain


def last_seen(store: Store, found: Catalogue) -> int:
    """Return the highest revision that any backup of the site names; 0 without backups."""
    highest = max((snapshot.revision for snapshot in found.snapshots), default=0)
    for epoch in found.epochs:
        if epoch.restored:
            highest = max(highest, epoch.restored.revision + epoch.restored.bump_revision)
        segments = found.of(epoch.epoch)[1]
        numbered = ((one.number, one.name) for one in segments)
        highest = max(highest, end_of_log(store, numbered, found.names.proof))
    return highest


def moment_text(time_ms: int) -> str:
    """Return a time (milliseconds since 1970) as people and ``Point.parse`` read it, in UTC."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _snapshot(found: Catalogue, point: Point) -> tuple[Epoch, Snapshot, Point]:
    newest = newest_epoch(found)
    if not found.snapshots:
        raise ProgramError(
            f"No snapshot of the site {found.names.site} is complete.",
            "Look at the agent's log. What was written before backups were signed: ask for unsigned:latest.",
        )
    for epoch in reversed(found.epochs):
        snapshots, segments = found.of(epoch.epoch)
        if point.kind == "latest" and not snapshots and not segments and epoch is newest and epoch.restored:
            # Of the epoch before, or of an earlier one, if an old point was restored.
            before = dataclasses.replace(found, epochs=found.epochs[:-1])
            return _snapshot(before, Point("revision", epoch.restored.revision))
        if point.kind == "time" and point.value < epoch.created * 1000:
            continue
        if point.kind == "revision" and (not snapshots or point.value < snapshots[0].revision):
            continue
        return _snapshot_at(found, epoch.epoch, point)
    first = found.snapshots[0]
    raise _before(point, first)


def _snapshot_at(found: Catalogue, number: int, point: Point) -> tuple[Epoch, Snapshot, Point]:
    epoch = next((one for one in found.epochs if one.epoch == number), None)
    if epoch is None:
        raise ProgramError(f"Epoch {number} is not in the store.")
    snapshots, _ = found.of(number)
    fitting = [
        one
        for one in snapshots
        if point.kind == "latest"
        or (point.kind == "revision" and one.revision <= point.value)
        or (point.kind == "time" and one.manifest.created * 1000 + SNAPSHOT_MARGIN_MS <= point.value)
    ]
    if fitting:
        return epoch, fitting[-1], point
    if snapshots:
        raise _before(point, snapshots[0])
    raise ProgramError(
        f"Epoch {number}, which began at {moment_text(epoch.created * 1000)}, has no snapshot.",
        "Ask for a time or revision before it.",
    )


def _before(point: Point, first: Snapshot) -> ProgramError:
    return ProgramError(
        f"{point} is before the first snapshot: revision {first.revision} at "
        f"{moment_text(first.manifest.created * 1000)}, epoch {first.epoch}.",
        f"Ask for revision:{first.revision} or a later point.",
    )


def _links(store: Store, found: Catalogue, snapshot: Snapshot, point: Point) -> t.Iterator[Link]:
    """Yield the segments from the snapshot's revision to the point."""
    reached = snapshot.revision
    if point.kind == "revision" and reached >= point.value:
        return
    segments = found.of(snapshot.epoch)[1]
    proof = found.names.proof
    upcoming = written(store, onward(store, segments, reached, proof), proof)
    current = next(upcoming, None)
    before: Link | None = None
    number = segments[-1].number if segments else 0
    while current is not None:
        (segment, header), current = current, next(upcoming, None)
        following = current[1] if current else None
        if isinstance(header, ChainError):
            if not isinstance(following, Header) or following.before == segment.name:
                raise header
            # The writer behind found it in this state too and went on from the one before.
            continue
        if header.first > reached + 1:
            _insist_on_frames(store, segment, proof)
            raise _gap(reached, header.first - 1)
        if before and header.before != before.segment.name:
            _insist_on_frames(store, segment, proof)
            raise ChainError(
                f"{header.before}, which {segment.name} goes on from, is missing.",
                f"Ask for revision:{reached} or an earlier point, or use the copy in another store.",
                altered=header.before,
            )
        try:
            before = _link(store, segment, following if isinstance(following, Header) else None, proof)
        except ChainError:
            if current is not None:
                _insist_on_frames(store, current[0], proof)
            raise
        yield before
        reached = max(reached, before.revision)
        if point.kind == "revision" and reached >= point.value:
            return
        if point.kind == "time" and before.time_ms > point.value:
            return
        while current is None:
            number += 1
            unlisted = _unlisted(store, found, snapshot.epoch, before, number)
            if unlisted is None:
                return
            current = next(headed(store, [unlisted], proof), None)


def _unlisted(store: Store, found: Catalogue, epoch: int, last: Link, number: int) -> Segment | None:
    """Return the segment behind a sealed one that the store's list of names did not have, if there is one.

    Lists may be old, and the log grows while it is read.
    """
    if not last.sealed:
        return None
    name = found.names.log(epoch, last.revision + 1, number)
    try:
        return Segment(Item(name, store.size(name), 0.0, 0.0), epoch, last.revision + 1, number)
    except NotThere:
        return None


def _link(store: Store, segment: Segment, following: Header | None, proof: Proof) -> Link:
    name = segment.name
    wanted = following.previous if following and following.before == name else ""
    seal = seal_of(store, name, proof)
    if seal and wanted in ("", seal.digest, seal.header.previous):
        # Not the seal itself: between it and the last frame that counts may be what was torn.
        return Link(segment, seal.header.previous, seal.header.last, seal.header.time_ms, sealed=True)
    if wanted:
        try:
            for frame in read_frames(store, name, proof.schema):
                if frame.digest == wanted:
                    return Link(segment, wanted, frame.header.last, frame.header.time_ms, sealed=True)
        except Torn:
            pass
        raise altered(name, "the frame that the next segment goes on from is not in it")
    last, clean = last_frame(store, name, proof)
    if last is None:
        raise altered(name, "its first frame is not what was written")
    if not clean:
        _insist_on_end(store, name, last.end, proof)
    sealed = last.header.sealed
    digest = last.header.previous if sealed and last.header.number else last.digest
    return Link(segment, digest, last.header.last, last.header.time_ms, sealed=sealed)


def _insist_on_end(store: Store, name: str, end: int, proof: Proof) -> None:
    """Raise ChainError when a segment is damaged at a byte; what others put behind its end is left out."""
    torn = is_torn(store, name, end, proof.schema)
    # Of a torn append the header may be whole, and signed.
    if not torn if proof.schema == UNSIGNED_SCHEMA else holds_ours(store, name, proof, end + torn):
        raise altered(name, f"byte {end} and beyond")
    LOG.warning(
        "%s in %s: what begins at byte %d was never acknowledged, or was not written by this site; "
        "it is left out.",
        *(name, store.name, end),
    )


def _insist_on_frames(store: Store, segment: Segment, proof: Proof) -> None:
    """Raise ChainError when it is the segment that is altered, and what its header says is not so."""
    try:
        for _ in read_frames(store, segment.name, proof.schema):
            pass
    except Torn:
        pass


def _gap(reached: int, last: int) -> ChainError:
    return ChainError(
        f"Revisions {reached + 1} to {last} are missing in the log.",
        f"Ask for revision:{reached} or an earlier point, or for one after the next snapshot.",
        gap=(reached + 1, last),
    )
