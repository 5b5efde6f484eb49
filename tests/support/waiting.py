# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waits in tests for what must happen, with deadlines that a slow machine keeps too."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable


def until(condition: Callable[[], t.Any], seconds: float = 180, pause: float = 0.05) -> None:
    """Wait for a condition.

    Args:
        condition: called again and again, until it returns something true.
        seconds: after which the test fails.
        pause: seconds between two calls.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(pause)
