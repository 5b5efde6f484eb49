# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads every byte of the backups and says which are not what was written. A drill proves more."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator

from ironspan.backup.catalogue import Catalogue, Snapshot
from ironspan.backup.crypto import Keys
from ironspan.backup.errors import ChainError, KeyMissing
from ironspan.backup.log_reader import read_log
from ironspan.backup.rebuild.drill import whole
from ironspan.backup.snapshot_reader import read_snapshot
from ironspan.backup.store import Store


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """What reading one snapshot and the log behind it found; ``problem`` is empty when all is right."""

    snapshot: str
    epoch: int
    revision: int
    """The last revision up to which everything is there."""
    problem: str = ""


def verify(store: Store, keys: Keys, found: Catalogue, snapshots: Iterable[Snapshot]) -> Iterator[Read]:
    """Read snapshots and the log behind each; nothing is written, and no disk is needed.

    Raises:
        StoreError: the store cannot be read.
    """
    for name, why in sorted(found.damaged.items()):
        yield Read(name, 0, 0, why)
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
