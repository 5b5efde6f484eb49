# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the program counts, for Prometheus."""

from __future__ import annotations

from ironspan.events.decide import OUTCOMES, Decision
from ironspan.program.metrics import Metrics as ProgramMetrics


class Metrics(ProgramMetrics):
    """Alerts, by what became of them; every outcome is there from the start."""

    def __init__(self) -> None:
        super().__init__("ironspan_events")
        self._alerts = self.counter("alerts", "Alerts, by what became of them.", "outcome")
        for outcome in OUTCOMES:
            self._alerts.labels(outcome)

    def told(self, decision: Decision) -> None:
        """Count an alert."""
        self._alerts.labels(decision.outcome).inc()
