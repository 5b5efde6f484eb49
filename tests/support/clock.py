# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Gives the same seconds until a test changes them.

    Args:
        now: what it gives at first.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now
