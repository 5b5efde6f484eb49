# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One span of time in which this agent is the one that writes."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Iterator

from ironspan.backup import recovery
from ironspan.backup.agent import epoch as epochs
from ironspan.backup.agent.copier import LOG_PAUSE_SECONDS, OBJECT_PAUSE_SECONDS, Copier
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.snapshots import Snapshots
from ironspan.backup.agent.snapshotter import Snapshotter
from ironspan.backup.agent.strangers import Strangers
from ironspan.backup.agent.watched import Watched
from ironspan.backup.care.caretaker import PAUSE_SECONDS as CARE_PAUSE_SECONDS
from ironspan.backup.care.caretaker import Caretaker
from ironspan.backup.catalogue import Snapshot, catalogue
from ironspan.backup.crypto import Keys
from ironspan.backup.errors import WrongCluster
from ironspan.backup.log.group import Gap
from ironspan.backup.log.pipeline import Pipeline, Place
from ironspan.backup.log.spool import Spool
from ironspan.backup.manifest import Epoch
from ironspan.backup.names import Names
from ironspan.backup.settings import Settings
from ironspan.backup.store import Store
from ironspan.backup.stores import certificates_of, open_store
from ironspan.backup.takeover import take_over
from ironspan.backup.written import known_segments
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Compacted
from ironspan.program.errors import LeaseLost
from ironspan.program.leader import Leadership
from ironspan.program.loop import Repeating
from ironspan.program.service import Step, repeating

LOG = logging.getLogger(__name__)
SNAPSHOT_PAUSE_SECONDS = 0.5
EPOCH_PAUSE_SECONDS = 10.0
VERDICTS_PAUSE_SECONDS = 120.0
RECOVERY_PAUSE_SECONDS = 600.0
DRAIN_SECONDS = 5.0
_LATE_SECONDS = 300.0
_SNAPSHOT_LATE_SECONDS = 3600.0
"""One step may be a whole snapshot of 8 GiB, of which a slow store takes its time."""
_COPY_LATE_SECONDS = 600.0
"""As the alert EtcdBackupCopyBehind."""
_STEP_SECONDS = 0.5
_REFUSALS = 2
"""The first may be a lease that ran out while the store was away, which nobody else has taken."""


class Session:
    """Writes the log and the snapshots of one cluster into the first store, and copies them to the others.

    Args:
        settings: of this host.
        client: of the cluster.
        store: the first one.
        keys: encrypt what is written.
        names: of the site; sign what is written.
        leadership: whose lease is held at the start.
        metrics: is told how it goes.
    """

    def __init__(
        self,
        settings: Settings,
        client: EtcdClient,
        store: Store,
        keys: Keys,
        names: Names,
        leadership: Leadership,
        metrics: Metrics,
    ) -> None:
        self._settings, self._client, self._store = settings, client, store
        self._keys, self._leadership, self._metrics = keys, leadership, metrics
        self._names = names
        self._newest: Epoch | None = None
        self._copies: list[Repeating] = []
        self._pipeline: Pipeline | None = None
        self._known: set[str] = set()
        self._strangers = Strangers(settings, store.name, metrics)
        self._caretaker = Caretaker(
            client,
            settings.care,
            certificates_of(settings),
            metrics.care,
            self._received,
            leadership.held,
        )

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set.

        Raises:
            LeaseLost: another agent writes.
            WrongCluster: the store's newest epoch is of another cluster, or has newer data than etcd.
            ProgramError: etcd or the store makes it impossible for now.
        """
        header = self._client.header()
        cluster_id = header.cluster_id
        epoch = self._newest = epochs.open_epoch(
            self._store, self._names, cluster_id, time.time(), header.revision
        )
        self._metrics.epoch.set(epoch.epoch)
        LOG.info("Writing epoch %d, cluster %s, to %s", epoch.epoch, epoch.cluster_id, self._store.name)
        snapshotter = Snapshotter(self._client, self._store, self._keys, self._names)
        every = self._settings.snapshot_every_s
        snapshots = Snapshots(
            snapshotter, self._store, self._names, epoch, every, self._metrics, self._wake_copies, time.time
        )
        after: int | None = None
        with contextlib.ExitStack() as chores:
            # Who writes after this one looks, too.
            chores.callback(self._strangers.forget)
            while not stop.is_set():
                pipeline = self._begin(cluster_id, epoch, after, snapshots)
                self._pipeline = pipeline
                if after is None:
                    chores.enter_context(self._chores(snapshots))
                pipeline.start()
                try:
                    self._attend(pipeline, epoch, stop, snapshots)
                finally:
                    pipeline.stop(DRAIN_SECONDS if self._leadership.held() else 0.0)
                failure = pipeline.failure
                if isinstance(failure, Gap):
                    LOG.error("%s", failure)
                    self._metrics.failed(failure)
                    self._metrics.gaps.inc()
                    after = self._client.header().revision
                elif failure is not None:
                    raise failure

    def _begin(self, cluster_id: int, epoch: Epoch, after: int | None, snapshots: Snapshots) -> Pipeline:
        """Make what writes the log, behind where it ends or, when it cannot go on there, behind ``after``."""
        end = take_over(self._store, self._names, epoch.epoch, self._settings.host)
        reached, age, taken = end.revision, 0.0, tuple[Snapshot, ...]()
        if not reached:
            taken, _ = catalogue(self._store, self._names).of(epoch.epoch)
            reached = max((snapshot.revision for snapshot in taken), default=0)
        revision = self._client.header().revision
        if reached > revision:
            raise WrongCluster(
                f"The backup in {self._store.name} is at revision {reached} and etcd at {revision}: this "
                "database is older than its backup.",
                "Restore the backup, or, if this database is the right one, begin an epoch for it with "
                "`ironspan backup accept`.",
            )
        if after is None and not reached:
            after = revision
        if after is not None:
            # Nothing leads into a log that starts over but a snapshot that is not older.
            snapshots.need(after, self._pipeline.position.rpo() if self._pipeline else 0.0)
        elif not end.revision:
            first = self._first_kept(taken)
            after, age = first.revision, time.time() - first.manifest.created
        folder = self._settings.spool.path / f"e{epoch.epoch:06d}-{epoch.cluster_id}"
        return Pipeline(
            self._client,
            cluster_id,
            Place(self._store, self._keys, self._names, epoch.epoch),
            end,
            Spool(folder, self._settings.spool.max_bytes),
            after=after,
            may_write=self._leadership.held,
            holder=self._settings.host,
            flush_s=self._settings.flush_ms / 1000,
            coalescing=self._settings.coalesce_node_leases,
            snapshot_age_s=age,
        )

    def _first_kept(self, snapshots: tuple[Snapshot, ...]) -> Snapshot:
        """Return the first of some snapshots whose following revisions etcd has; the last without any."""
        for snapshot in snapshots:
            with contextlib.suppress(Compacted):
                self._client.range(b"\0", limit=1, keys_only=True, revision=snapshot.revision)
                return snapshot
        return snapshots[-1]

    def _attend(self, pipeline: Pipeline, epoch: Epoch, stop: threading.Event, snapshots: Snapshots) -> None:
        """Watch over the log until it ends, ``stop`` is set, or another agent writes."""
        watched = Watched(pipeline, self._metrics, snapshots.missing)
        self._metrics.active.set(1)
        ended = False
        while not stop.is_set() and not ended:
            ended = pipeline.wait(_STEP_SECONDS, stop)
            watched.step()
            if self._leadership.refusals >= _REFUSALS:
                raise LeaseLost(f"Another agent writes to {self._store.name}.")
            if self._newest is not None and self._newest.epoch != epoch.epoch:
                raise WrongCluster(f"{self._store.name} has the new epoch {self._newest.epoch}.")
            if ended and isinstance(pipeline.failure, Gap):
                # What came before the gap is still worth having.
                ended = not len(pipeline.outbox) or pipeline.sender.ended.is_set()

    @contextlib.contextmanager
    def _chores(self, snapshots: Snapshots) -> Iterator[None]:
        """Do beside the log what need not be done at once."""
        chores = [
            Step("care", self._caretaker.step, CARE_PAUSE_SECONDS, _LATE_SECONDS),
            Step("recovery", self._keep_recovery, RECOVERY_PAUSE_SECONDS, 2 * RECOVERY_PAUSE_SECONDS),
            Step("snapshots", snapshots.step, SNAPSHOT_PAUSE_SECONDS, _SNAPSHOT_LATE_SECONDS),
            Step("epoch", self._look_for_another_epoch, EPOCH_PAUSE_SECONDS, _LATE_SECONDS),
            Step("verdicts", self._look_for_verdicts, VERDICTS_PAUSE_SECONDS, 2 * _LATE_SECONDS),
        ]
        copies, labels = [], []
        for number, entry in enumerate(self._settings.stores[1:], 1):
            copier = Copier(self._store, functools.partial(open_store, entry), self._names, self._copied)
            for what, step, pause in (
                ("log", copier.logs, LOG_PAUSE_SECONDS),
                ("objects", copier.objects, OBJECT_PAUSE_SECONDS),
            ):
                copies.append(Step(f"copy-{number}-{what}", step, pause, _COPY_LATE_SECONDS))
                labels.append((str(number), what))
        with repeating(self._metrics, *chores, *copies) as threads:
            self._copies = threads[len(chores) :]
            for label, copy in zip(labels, self._copies, strict=True):
                self._metrics.copy_lag.labels(*label).set_function(copy.age)
            yield

    def _received(self) -> int:
        """Return the last revision that the log has, if only on this host yet."""
        return self._pipeline.position.received_revision if self._pipeline else 0

    def _keep_recovery(self) -> None:
        """Do what the playbook does when it brings another copy of the PKI store, if it could not then."""
        if recovery.PATH.exists() and (name := recovery.keep(self._store, self._names)):
            LOG.info("Kept the PKI store's sealed copy as %s", name)

    def _wake_copies(self) -> None:
        for copy in self._copies:
            copy.wake()

    def _copied(self, size: int) -> None:
        self._metrics.written.labels("copy").inc(size)

    def _look_for_another_epoch(self) -> None:
        """See whether a restore began one: then this log is of the past."""
        self._newest = epochs.newest(self._store, self._names)

    def _look_for_verdicts(self) -> None:
        """Show what drills have proven, and how much there is that this site did not write."""
        found = known_segments(self._store, catalogue(self._store, self._names), self._known)
        self._strangers.show(found.damaged)
        proven = [one for one in found.snapshots if one.verified]
        if proven:
            newest = max(proven, key=lambda snapshot: snapshot.manifest.created)
            self._metrics.verified_time.set(newest.manifest.created)
            self._metrics.verified_revision.set(newest.revision)
