# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One look at the cluster and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from prometheus_client import CollectorRegistry, Counter, Gauge

from ironspan.backup.care.defragment import defragment, due
from ironspan.backup.care.health import CORRUPT, NO_SPACE, Health, look
from ironspan.backup.care.space import make_room
from ironspan.backup.settings import Care
from ironspan.etcd.client import EtcdClient
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 30.0
PREFIX = "ironspan_etcd"


class CareMetrics:
    """What Prometheus reads of the members.

    Args:
        registry: that they are part of.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", text, labels, registry=registry)

        self.healthy = gauge("member_healthy", "1 while a member is in sync and has a leader.", "member")
        self.fragmentation = gauge("fragmentation_percent", "Free share of a member's file.", "member")
        self.quota_used = gauge("quota_used_percent", "A member's file by its quota.", "member")
        self.alarm = gauge("alarm", "1 while an alarm is raised.", "member", "alarm")
        self.expiry = gauge("certificate_expiry_timestamp_seconds", "When a certificate ends.", "file")
        self.defragmented = Counter(f"{PREFIX}_defragmentations", "Files rewritten.", registry=registry)
        self.room_made = Counter(f"{PREFIX}_space_recoveries", "NOSPACE alarms cleared.", registry=registry)

    def show(self, health: Health) -> None:
        """Set what one look has found."""
        for member in health.members:
            self.healthy.labels(member.endpoint).set(not member.problem)
            if member.id:
                self.fragmentation.labels(member.endpoint).set(member.fragmentation)
                self.quota_used.labels(member.endpoint).set(member.quota_used)
            for alarm in (NO_SPACE, CORRUPT):
                self.alarm.labels(member.endpoint, alarm).set(member.id in health.raised(alarm))

    def forget(self) -> None:
        """Show nothing of the members: another agent looks after them."""
        for gauge in (self.healthy, self.fragmentation, self.quota_used, self.alarm):
            gauge.clear()


class Caretaker:
    """Looks at the cluster, fixes what it can, and says what it cannot.

    Args:
        client: knows the endpoints of all members.
        care: when something is done.
        certificates: files whose end is shown.
        metrics: told what is found.
        logged: the last revision that the backup's log has seen, if there is a log.
        going_on: whether this is still this agent's task.
    """

    def __init__(
        self,
        client: EtcdClient,
        care: Care,
        certificates: tuple[Path, ...],
        metrics: CareMetrics,
        logged: Callable[[], int] | None = None,
        going_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self._care, self._metrics = client, care, metrics
        self._certificates, self._logged, self._going_on = certificates, logged, going_on

    def step(self) -> Health:
        """Do what is due now.

        Raises:
            ProgramError: something is wrong that takes a person.
        """
        self._show_certificates()
        health = self._look()
        corrupt = health.raised(CORRUPT)
        if corrupt:
            names = ", ".join(map(health.endpoint, corrupt))
            raise ProgramError(
                f"The data of {names} differ from those of the other members (alarm CORRUPT).",
                "Replace that member: ironspan apply member_replace -e ironspan_hosts=HOST "
                "--allow-destructive; it gets its data from the others. Do not disarm the alarm before.",
            )
        if make_room(self._client, health, self._logged, self._going_on):
            self._metrics.room_made.inc()
            health = self._look()
        care = self._care
        members = due(health, care.defragment_fragmentation_percent, care.defragment_least_bytes)
        if members and (done := defragment(self._client, members, going_on=self._going_on)):
            self._metrics.defragmented.inc(done)
            health = self._look()
        for member in health.members:
            if member.quota_used >= care.quota_warn_percent:
                LOG.warning("%s uses %.0f %% of its quota", member.endpoint, member.quota_used)
        return health

    def _look(self) -> Health:
        health = look(self._client)
        self._metrics.show(health)
        return health

    def _show_certificates(self) -> None:
        for path in self._certificates:
            try:
                ends = [
                    certificate.not_valid_after_utc.timestamp()
                    for certificate in x509.load_pem_x509_certificates(path.read_bytes())
                ]
            except (OSError, ValueError) as error:
                raise ProgramError(f"{path} cannot be read: {error}") from None
            self._metrics.expiry.labels(str(path)).set(min(ends))
