# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from the agent (docs/backup.md has the list)."""

from __future__ import annotations

from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)

from ironspan.backup.care.caretaker import CareMetrics
from ironspan.backup.errors import ChainError, WrongCluster
from ironspan.backup.log.spool import SpoolError
from ironspan.etcd.errors import Compacted, EtcdError
from ironspan.program.errors import KeyMissing, LeaseLost, ProgramError, Refused, ServiceError

PREFIX = "ironspan_etcd_backup"
KINDS = ("store", "refused", "lease", "etcd", "gap", "chain", "key", "cluster", "spool", "other")
_KIND_OF: tuple[tuple[type[BaseException], str], ...] = (
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


class Metrics:
    """The agent's metrics in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(namespace=PREFIX, registry=self.registry)
        self.active = self._gauge("active", "1 while this agent is the one that writes.")
        self.epoch = self._gauge("epoch", "The store's epoch that this agent writes to.")
        self.lease_seconds = self._gauge("lease_remaining_seconds", "For how long a write may still be sent.")
        self.rpo = self._gauge(
            "rpo_seconds",
            "What losing etcd now would lose: the age of the newest moment up to which all is in the store.",
        )
        self.log_revision = self._gauge("log_revision", "The last revision that is in the store's log.")
        self.seen_revision = self._gauge("seen_revision", "The last revision that etcd showed to the watch.")
        self.spool_bytes = self._gauge("spool_bytes", "Bytes of the log that wait on this host's disk.")
        self.snapshot_time = self._gauge("last_snapshot_timestamp_seconds", "When the last one was taken.")
        self.snapshot_revision = self._gauge("last_snapshot_revision", "Its revision.")
        self.snapshot_size = self._gauge("last_snapshot_size_bytes", "Its plain bytes.")
        self.snapshot_duration = self._gauge("last_snapshot_duration_seconds", "How long it took.")
        self.verified_time = self._gauge(
            "last_verified_timestamp_seconds", "When the newest snapshot was taken whose restore was proven."
        )
        self.verified_revision = self._gauge("last_verified_revision", "Its revision.")
        self.guard = self._gauge(
            "guard",
            "1 while etcd of this host serves something else than what was backed up, 2 while it is closed.",
        )
        self.unproven = self._gauge(
            "unproven_objects", "Objects of the first store that are not what the site wrote."
        )
        self.copy_lag = Gauge(
            f"{PREFIX}_copy_lag_seconds",
            "The age of the newest moment up to which a second store has all that the first one has.",
            ["store", "what"],
            registry=self.registry,
        )
        self.written = Counter(f"{PREFIX}_written_bytes", "Bytes written.", ["what"], registry=self.registry)
        self.gaps = self._counter("gaps", "Times that revisions were lost to the log.")
        self.stalls = self._counter("watch_stalls", "Times that etcd's silent watch was started over.")
        self.errors = Counter(f"{PREFIX}_errors", "Failures.", ["kind"], registry=self.registry)
        self.care = CareMetrics(self.registry)
        for kind in KINDS:
            self.errors.labels(kind)
        for what in ("log", "snapshot", "copy"):
            self.written.labels(what)

    def standby(self) -> None:
        """Note that this agent does not write, so that it has no data loss to report."""
        self.rpo.set_function(float)
        for gauge in (self.active, self.spool_bytes):
            gauge.set(0)
        self.care.forget()

    def failed(self, error: BaseException) -> str:
        """Count a failure and return its kind."""
        kind = next((kind for base, kind in _KIND_OF if isinstance(error, base)), "other")
        if isinstance(error, ChainError) and error.gap:
            kind = "gap"
        self.errors.labels(kind).inc()
        return kind

    def serve(self, address: str, port: int) -> WSGIServer:
        """Answer Prometheus on an address until ``shutdown`` of what is returned.

        Raises:
            ProgramError: the address cannot be listened on.
        """
        try:
            return start_http_server(port, address, registry=self.registry)[0]
        except OSError as error:
            raise ProgramError(
                f"Metrics cannot be served on {address}, port {port}: {error.strerror}.",
                "Set metrics.address and metrics.port in the settings to what is free on this host.",
            ) from error

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, registry=self.registry)
