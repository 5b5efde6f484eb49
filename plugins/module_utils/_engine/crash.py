# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Numbered places at which a test may kill the process, to prove that the next run repairs everything.

The hook is deaf on a real host: it is armed only below a private root (``root`` other than "/").
"""

from __future__ import annotations

import os
import signal

VARIABLE = "IRONSPAN_TEST_KILL_AT"
"""Environment variable: number of the place (the first is 1) where the process kills itself."""


class CrashPoints:
    """Counts the places that a run passes and kills the process, like ``kill -9``, at the chosen one."""

    def __init__(self, root: str) -> None:
        self.reached = 0
        chosen = os.environ.get(VARIABLE, "") if root != "/" else ""
        self.chosen = int(chosen) if chosen.isdigit() else 0
        self.armed = bool(chosen)

    def reach(self) -> None:
        """Count one place; die here when it is the chosen one."""
        self.reached += 1
        if self.reached == self.chosen:
            os.kill(os.getpid(), signal.SIGKILL)
