# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Shows in metrics and messages how the log goes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ironspan.backup.agent.metrics import LOG_STEP, Metrics
from ironspan.backup.log.pipeline import Pipeline
from ironspan.program.errors import ProgramError
from ironspan.program.lasting import Lasting

LOG = logging.getLogger(__name__)
LATE_SECONDS = 300.0
"""As the alert EtcdBackupFarBehind."""


class Watched:
    """One run of the log, looked at now and then by one thread.

    Args:
        pipeline: the run.
        metrics: where it is shown.
        missing: the age, in seconds, of what the log has and no snapshot leads to.
    """

    def __init__(
        self, pipeline: Pipeline, metrics: Metrics, missing: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._written = 0
        self._stalls = 0
        self._counted: dict[str, ProgramError | None] = {}
        self._lasting = {what: Lasting(LOG) for what in ("store", "etcd", "spool")}
        metrics.watch(LOG_STEP, pipeline.position.rpo, LATE_SECONDS)
        metrics.rpo.set_function(lambda: max(pipeline.position.rpo(), missing()))

    def step(self) -> None:
        """Look once."""
        pipeline, metrics = self._pipeline, self._metrics
        metrics.log_revision.set(pipeline.position.durable_revision)
        metrics.seen_revision.set(pipeline.position.received_revision)
        metrics.spool_bytes.set(pipeline.outbox.spooled_bytes)
        written, stalls = pipeline.sender.written_bytes, pipeline.reader.stalls
        metrics.written.labels("log").inc(written - self._written)
        metrics.stalls.inc(stalls - self._stalls)
        self._written, self._stalls = written, stalls
        problems: dict[str, ProgramError | None] = {
            "store": pipeline.sender.problem,
            "etcd": pipeline.reader.problem,
            "spool": pipeline.outbox.problem,
        }
        for what, problem in problems.items():
            if problem is not None and problem is not self._counted.get(what):
                metrics.failed(problem)
            self._counted[what] = problem
            self._lasting[what].tell(problem)
