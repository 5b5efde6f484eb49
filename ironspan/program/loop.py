# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a program does again and again, beside what it does for others."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
LONGEST_PAUSE_SECONDS = 60.0


class Repeating:
    """Runs a step again and again in a thread, more slowly while it fails.

    Args:
        name: of the thread, for messages.
        step: what to run.
        pause: seconds between the end of one run and the next.
        failed: called with what a run raised.
        clock: seconds, never set back.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        pause: float,
        failed: Callable[[Exception], object] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # When the last run that came to its end was begun: all of before that is done.
        self._done_at = clock()
        self._succeeded = False
        self._step, self._pause, self._failed, self._clock = step, pause, failed, clock
        self._ended = False
        self._bell = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def age(self) -> float:
        """Return for how many seconds something may be waiting to be done."""
        return max(0.0, self._clock() - self._done_at)

    def since_success(self) -> float:
        """Return for how many seconds no run has come to its end, infinite when none ever has."""
        return self.age() if self._succeeded else math.inf

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Run the step soon: there is something to do."""
        self._bell.set()

    def end(self) -> None:
        """Run no further step."""
        self._ended = True
        self._bell.set()

    def stop(self, seconds: float = 5.0) -> None:
        """End, waiting for the step that runs, but not for long: every step may be cut off."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        wait = 0.0
        while not self._ended:
            begun = self._clock()
            try:
                self._step()
            except Exception as error:
                known = isinstance(error, ProgramError)
                LOG.warning("%s: %s", self._thread.name, error, exc_info=None if known else error)
                self._failed(error)
                asked = getattr(error, "retry_after", None) or 0.0
                wait = max(min(2 * max(wait, self._pause), LONGEST_PAUSE_SECONDS), asked)
            else:
                self._done_at, self._succeeded, wait = begun, True, self._pause
            self._bell.wait(wait)
            self._bell.clear()
