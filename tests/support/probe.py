# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks a cluster the same questions all the time, and remembers when it did not answer."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

PAUSE_S = 0.25
TIMEOUT_S = 5.0


@dataclasses.dataclass
class Answers:
    """How one question was answered.

    Args:
        good: how often it was.
        failures: when and why it was not: (seconds since the start, what the client said).
        longest_gap: the longest time between two good answers, in seconds.
    """

    good: int = 0
    failures: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    longest_gap: float = 0.0


class Probe:
    """Asks while a block runs.

    Args:
        client: makes a client, again for each question: so each takes a new connection.
        paths: what to ask for, by name.
    """

    def __init__(self, client: Callable[[], Api], paths: dict[str, str]) -> None:
        self._client, self._paths = client, paths
        self.answers = {name: Answers() for name in paths}
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(name, path), daemon=True) for name, path in paths.items()
        ]

    def __enter__(self) -> Probe:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S * 3)

    def _ask(self, name: str, path: str) -> None:
        answers, began = self.answers[name], time.monotonic()
        last = began
        while not self._end.wait(PAUSE_S):
            try:
                self._client().request("GET", path, timeout=TIMEOUT_S, patience=0)
            except (ClusterError, OSError) as error:
                answers.failures.append((time.monotonic() - began, str(error)))
                continue
            now = time.monotonic()
            answers.good += 1
            answers.longest_gap = max(answers.longest_gap, now - last)
            last = now
