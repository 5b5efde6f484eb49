# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When a snapshot is due: every so many seconds, at once after a gap or when asked, later after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0


class Schedule:
    """Says whether a snapshot is due.

    Args:
        every: seconds between snapshots.
        age: of the newest one in the store, seconds; None when there is none. A clock that was set back or
            forward since then makes one come early or on time, never late.
        clock: seconds, never set back.
    """

    def __init__(self, every: float, age: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        # A snapshot of the future says nothing of its age.
        self._next = clock() + (every - age if age is not None and 0 <= age < every else 0.0)
        self._pause = FIRST_PAUSE_SECONDS

    def due(self) -> bool:
        """Return whether one is due now."""
        return self._clock() >= self._next

    def ask(self) -> None:
        """Make one due at once: the log has a gap, or an operator asks."""
        self._next = self._clock()

    def taken(self, begun: float) -> None:
        """Note that one was taken, which was begun at a time of the clock."""
        self._next = begun + self._every
        self._pause = FIRST_PAUSE_SECONDS

    def failed(self) -> None:
        """Note that one was not taken: the next try waits, twice as long each time."""
        self._next = self._clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
