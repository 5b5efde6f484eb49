# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Numbers and times in words."""

from __future__ import annotations

import datetime


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun, for example ``1 host`` or ``1,000 hosts``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def took(seconds: float) -> str:
    """Return how long something took, as people say it."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def age(seconds: float) -> str:
    """Return how long something is ago, in the largest unit that says enough; "now" below a minute."""
    for unit, length in (("year", 365 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length * (2 if unit != "minute" else 1):
            return count(int(seconds // length), unit)
    return "less than a minute"


def moment(unix: float) -> str:
    """Return a point in time for people, in UTC."""
    return datetime.datetime.fromtimestamp(unix, datetime.UTC).strftime("%-d %B %Y, %H:%M:%S UTC")
