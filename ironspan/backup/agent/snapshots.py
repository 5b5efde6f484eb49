# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes the snapshots of an epoch when they are due, and the one that a new or broken log needs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.schedule import Schedule
from ironspan.backup.agent.snapshotter import Snapshotter
from ironspan.backup.catalogue import catalogue
from ironspan.backup.chain import Point, choose
from ironspan.backup.manifest import Epoch
from ironspan.backup.names import Names
from ironspan.backup.store import Store
from ironspan.program.errors import ProgramError, ServiceError

LOG = logging.getLogger(__name__)


class Snapshots:
    """The snapshots of one epoch. One thread calls ``step``; any may call ``need``.

    Args:
        snapshotter: takes them.
        store: where they are.
        names: of the site.
        epoch: the store's newest.
        every: seconds between two.
        metrics: is told about each.
        taken: called after each.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        snapshotter: Snapshotter,
        store: Store,
        names: Names,
        epoch: Epoch,
        every: float,
        metrics: Metrics,
        taken: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._snapshotter, self._store, self._names, self._epoch = snapshotter, store, names, epoch
        self._every, self._metrics, self._taken, self._wall = every, metrics, taken, wall
        self._schedule: Schedule | None = None
        self._needed = threading.Event()
        self._least = 0
        self._lock = threading.Lock()
        # Until the store was read it is not known what leads into its log.
        self._alone_since: float | None = time.monotonic()

    def need(self, least: int, age: float = 0.0) -> None:
        """Ask for a snapshot at once: the log begins behind a revision, and nothing leads to it.

        Args:
            least: that revision.
            age: of the newest moment up to which everything can be restored without it, seconds.
        """
        with self._lock:
            self._least = least
        self._alone(age)
        self._needed.set()

    def _alone(self, age: float) -> None:
        with self._lock:
            now = time.monotonic()
            self._alone_since = min(self._alone_since or now, now - age)

    def missing(self) -> float:
        """Return the age, in seconds, of what cannot be restored for want of a snapshot; 0 for nothing."""
        since = self._alone_since
        return 0.0 if since is None else time.monotonic() - since

    def step(self) -> None:
        """Take a snapshot if one is due.

        Raises:
            ProgramError: it was not taken; calling again tries again, later each time.
        """
        if self._schedule is None:
            self._schedule = self._plan()
        if self._needed.is_set():
            self._needed.clear()
            self._schedule.ask()
        if not self._schedule.due():
            return
        begun = time.monotonic()
        try:
            identifier, taken = self._snapshotter.take(self._epoch, self._least)
        except ProgramError:
            self._schedule.failed()
            raise
        self._schedule.taken(begun)
        with self._lock:
            if taken.revision >= self._least:
                self._alone_since = None
        seconds = time.monotonic() - begun
        LOG.info("Snapshot %s, revision %d: %.1f s", identifier, taken.revision, seconds)
        self._metrics.snapshot_time.set(taken.created)
        self._metrics.snapshot_revision.set(taken.revision)
        self._metrics.snapshot_size.set(taken.size)
        self._metrics.snapshot_duration.set(seconds)
        self._metrics.written.labels("snapshot").inc(taken.size)
        self._taken()

    def _plan(self) -> Schedule:
        """Return when the next one is due, by what the store has."""
        found = catalogue(self._store, self._names)
        own, _ = found.of(self._epoch.epoch)
        age = None
        if not own:
            # Nothing that was written since the epoch began can be restored, though this agent began later.
            self._alone(max(0.0, self._wall() - self._epoch.created))
        else:
            newest = max(snapshot.manifest.created for snapshot in own)
            age = self._wall() - newest
            self._metrics.snapshot_time.set(newest)
            try:
                choose(self._store, found, Point())
            except ServiceError:
                raise
            except ProgramError as error:
                LOG.warning("A snapshot is needed: %s", error)
                self._alone(age)
                age = None
            else:
                with self._lock:
                    if not self._needed.is_set():
                        self._alone_since = None
        return Schedule(self._every, age)
