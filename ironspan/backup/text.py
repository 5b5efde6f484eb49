# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them, for this program and for the command line: it imports nothing heavy."""

from __future__ import annotations


def size(count: float) -> str:
    """Return a number of bytes in the unit that people read it in."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
