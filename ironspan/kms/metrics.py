# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from the plugin (docs/encryption.md has the list)."""

from __future__ import annotations

from ironspan.kms.protocol import METHODS
from ironspan.program import metrics

PREFIX = "ironspan_kms"
OUTCOMES = ("ok", "failed")
VAULT_STEP = "vault"
"""Watched like the steps that are repeated: when the vault opened what its key has wrapped."""


class Metrics(metrics.Metrics):
    """The plugin's metrics, besides those of every program."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        self.requests = self.counter("requests", "Requests of API servers.", "method", "outcome")
        for method in METHODS:
            for outcome in OUTCOMES:
                self.requests.labels(method, outcome)
