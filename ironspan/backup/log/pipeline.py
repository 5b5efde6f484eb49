# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The log of one run: reader, flusher and sender, joined."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable

from ironspan.backup.crypto import Keys
from ironspan.backup.log import flusher, watch
from ironspan.backup.log.inbox import Inbox
from ironspan.backup.log.leases import LeaseBook
from ironspan.backup.log.outbox import Outbox
from ironspan.backup.log.position import Position
from ironspan.backup.log.probe import Probe
from ironspan.backup.log.sender import Sender
from ironspan.backup.log.spool import Spool
from ironspan.backup.names import Names
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.store import Store
from ironspan.backup.takeover import LogEnd
from ironspan.etcd.client import EtcdClient
from ironspan.program.errors import ProgramError

DELIVERY_S = 1.0
"""What etcd may have acknowledged more while the last record of a log was on its way to it, seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a log goes: the store, the epoch, and the keys that encrypt it."""

    store: Store
    keys: Keys
    names: Names
    epoch: int

    def begin(self, end: LogEnd, after: int | None = None) -> SegmentWriter:
        """Make the next segment; see ``SegmentWriter.begin``."""
        return SegmentWriter.begin(self.store, self.keys, self.names, self.epoch, end, after)


class Pipeline:
    """Everything between etcd and the store. One thread makes, starts and stops it.

    Args:
        client: of the cluster.
        cluster_id: of the cluster that the epoch belongs to.
        place: where the log goes.
        end: where it ends, of ``take_over``.
        after: the revision to go on behind, where that is not the log's last: of the first snapshot, or
            behind a gap.
        spool: of this epoch, not yet recovered.
        may_write: whether the lease is held now.
        holder: who writes, for people who read the log.
        flush_s: see ``Flusher``.
        interval_s: see ``Reader``.
        snapshot_age_s: of what leads to ``after``: how long ago etcd had nothing newer, seconds.
        coalescing: see ``Sender``.

    Raises:
        ServiceError: the segment cannot be begun.
        LeaseLost: another writer has.
        SpoolError: the spool cannot be read.
    """

    def __init__(
        self,
        client: EtcdClient,
        cluster_id: int,
        place: Place,
        end: LogEnd,
        spool: Spool,
        after: int | None = None,
        may_write: Callable[[], bool] = lambda: True,
        holder: str = "",
        flush_s: float = flusher.FLUSH_S,
        interval_s: float = watch.INTERVAL_S,
        coalescing: bool = True,
        snapshot_age_s: float = 0.0,
    ) -> None:
        writer = place.begin(end, after)
        next_revision = spool.recover(writer.durable)
        # Behind another revision it is a snapshot that leads into this log, and not what came before.
        goes_on = end.time_ms > 0 and writer.durable == end.revision
        age_s = time.time() - end.time_ms / 1000 if goes_on else snapshot_age_s
        if age_s < 0 or (goes_on and end.behind):
            # Nobody knows: the clock was set back, or the log ends with what etcd had overtaken already.
            age_s = math.inf
        self.position = Position(writer.durable, age_s=age_s + DELIVERY_S * goes_on)
        inbox = Inbox()
        self.outbox = Outbox(spool)
        self.reader = watch.Reader(client, inbox, self.position, cluster_id, next_revision, interval_s)
        self.flusher = flusher.Flusher(inbox, self.outbox, LeaseBook(client), next_revision, flush_s)
        self.sender = Sender(self.outbox, writer, place.begin, self.position, may_write, coalescing, holder)
        self.probe = Probe(client, cluster_id, self.position)
        self._parts = (self.reader, self.flusher, self.sender)

    @property
    def failure(self) -> ProgramError | None:
        """Why a part ended by itself, the first one's in the order etcd to store; None while all run."""
        return next((part.failure for part in self._parts if part.failure), None)

    def start(self) -> None:
        """Begin."""
        for part in (self.sender, self.flusher, self.reader, self.probe):
            part.start()

    def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Wait until a part ends by itself, ``stop`` is set, or some seconds are over.

        Returns:
            Whether a part ended.
        """
        stop = stop or threading.Event()
        step = min(seconds, 0.2)
        while seconds > 0 and not self._ended() and not stop.wait(step):
            seconds -= step
        return self._ended()

    def _ended(self) -> bool:
        return any(part.ended.is_set() for part in self._parts)

    def stop(self, drain_s: float = 5.0) -> None:
        """End all parts from etcd to the store; what could not be sent in ``drain_s`` seconds is spooled."""
        self.probe.stop()
        self.reader.stop()
        self.flusher.stop(drain_s)
        self.sender.stop(drain_s)
        self.outbox.spill()
