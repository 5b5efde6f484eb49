# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads every byte of the backups and says which are not what was written. A drill proves more."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator

from ironspan.backup.catalogue import Catalogue, Segment, Snapshot
from ironspan.backup.crypto import Keys
from ironspan.backup.ends import is_torn, last_frame, seal_of
from ironspan.backup.errors import ChainError
from ironspan.backup.log_reader import read_log
from ironspan.backup.rebuild.drill import whole
from ironspan.backup.snapshot_reader import read_snapshot
from ironspan.backup.store import Store
from ironspan.backup.written import known_segments
from ironspan.program.errors import KeyMissing


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """What reading one snapshot and the log behind it found; ``problem`` is empty when all is right."""

    snapshot: str
    epoch: int
    revision: int
    """The last revision up to which everything is there."""
    problem: str = ""


def _behind_the_end(store: Store, found: Catalogue, segment: Segment) -> str:
    """Return what is wrong with what stands behind the last signed frame; empty for a torn append."""
    proof = found.names.proof
    last, clean = last_frame(store, segment.name, proof)
    end = last.end if last else 0
    if clean or seal_of(store, segment.name, proof) or is_torn(store, segment.name, end, proof.schema):
        return ""
    return f"{segment.name} is not what was written: byte {end} and beyond"


def verify(store: Store, keys: Keys, found: Catalogue, snapshots: Iterable[Snapshot]) -> Iterator[Read]:
    """Read snapshots and the log behind each; nothing is written, and no disk is needed.

    Raises:
        ServiceError: the store cannot be read.
    """
    ours = known_segments(store, found)
    for name, why in sorted(ours.damaged.items()):
        yield Read(name, 0, 0, why)
    for segment in ours.segments:
        if problem := _behind_the_end(store, found, segment):
            yield Read(segment.name, segment.epoch, 0, problem)
    for snapshot in snapshots:
        try:
            collections.deque(read_snapshot(store, keys, snapshot), maxlen=0)
            chain, _ = whole(store, found, snapshot, keys)
            links = [(link.segment.name, link.digest) for link in chain.links]
            records = read_log(store, keys, links, snapshot.revision, until=chain.revision)
            collections.deque(records, maxlen=0)
        except (ChainError, KeyMissing) as error:
            yield Read(snapshot.id, snapshot.epoch, snapshot.revision, str(error))
        else:
            yield Read(snapshot.id, snapshot.epoch, chain.revision)
