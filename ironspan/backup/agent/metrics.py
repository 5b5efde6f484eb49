# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from the agent (docs/backup.md has the list)."""

from __future__ import annotations

from ironspan.backup.care.caretaker import CareMetrics
from ironspan.backup.errors import ChainError, WrongCluster
from ironspan.backup.log.spool import SpoolError
from ironspan.etcd.errors import Compacted, EtcdError
from ironspan.program import metrics
from ironspan.program.errors import KeyMissing, LeaseLost, ProgramError, Refused, ServiceError

PREFIX = "ironspan_etcd_backup"
LOG_STEP = "log"
"""Watched like the steps that are repeated: when all that etcd acknowledged was in the store."""
KINDS = ("store", "refused", "lease", "etcd", "gap", "chain", "key", "cluster", "spool", "other")
_KIND_OF: metrics.Kinds = (
    (LeaseLost, "lease"),
    (Refused, "refused"),
    (ServiceError, "store"),
    (Compacted, "gap"),
    (EtcdError, "etcd"),
    (ChainError, "chain"),
    (KeyMissing, "key"),
    (WrongCluster, "cluster"),
    (SpoolError, "spool"),
    (ProgramError, "other"),
    (OSError, "spool"),
)


class Metrics(metrics.Metrics):
    """The agent's metrics, besides those of every program."""

    def __init__(self) -> None:
        super().__init__(PREFIX, _KIND_OF)
        self.active = self.gauge("active", "1 while this agent is the one that writes.")
        self.epoch = self.gauge("epoch", "The store's epoch that this agent writes to.")
        self.lease_seconds = self.gauge("lease_remaining_seconds", "For how long a write may still be sent.")
        self.rpo = self.gauge(
            "rpo_seconds",
            "What losing etcd now would lose: the age of the newest moment up to which all is in the store.",
        )
        self.log_revision = self.gauge("log_revision", "The last revision that is in the store's log.")
        self.seen_revision = self.gauge("seen_revision", "The last revision that etcd showed to the watch.")
        self.spool_bytes = self.gauge("spool_bytes", "Bytes of the log that wait on this host's disk.")
        self.snapshot_time = self.gauge("last_snapshot_timestamp_seconds", "When the last one was taken.")
        self.snapshot_revision = self.gauge("last_snapshot_revision", "Its revision.")
        self.snapshot_size = self.gauge("last_snapshot_size_bytes", "Its plain bytes.")
        self.snapshot_duration = self.gauge("last_snapshot_duration_seconds", "How long it took.")
        self.verified_time = self.gauge(
            "last_verified_timestamp_seconds", "When the newest snapshot was taken whose restore was proven."
        )
        self.verified_revision = self.gauge("last_verified_revision", "Its revision.")
        self.guard = self.gauge(
            "guard",
            "1 while etcd of this host serves something else than what was backed up, 2 while it is closed.",
        )
        self.unproven = self.gauge(
            "unproven_objects", "Objects of the first store that are not what the site wrote."
        )
        self.copy_lag = self.gauge(
            "copy_lag_seconds",
            "The age of the newest moment up to which a second store has all that the first one has.",
            "store",
            "what",
        )
        self.written = self.counter("written_bytes", "Bytes written.", "what")
        self.gaps = self.counter("gaps", "Times that revisions were lost to the log.")
        self.stalls = self.counter("watch_stalls", "Times that etcd's silent watch was started over.")
        self.care = CareMetrics(self.registry)
        for what in ("log", "snapshot", "copy"):
            self.written.labels(what)

    def standby(self) -> None:
        """Note that this agent does not write, so that it has no data loss to report."""
        self.rpo.set_function(float)
        for gauge in (self.active, self.spool_bytes):
            gauge.set(0)
        self.forget(LOG_STEP)
        self.care.forget()

    def failed(self, error: BaseException) -> str:
        """Count a failure and return its kind."""
        if isinstance(error, ChainError) and error.gap:
            self.errors.labels("gap").inc()
            return "gap"
        return super().failed(error)
