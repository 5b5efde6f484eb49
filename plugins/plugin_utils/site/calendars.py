# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Times of day and days as timers of systemd have them: systemd.time(7), CALENDAR EVENTS."""

from __future__ import annotations

import calendar
import re

_WORDS = frozenset(
    ["minutely", "hourly", "daily", "monthly", "weekly", "yearly", "annually", "quarterly", "semiannually"]
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_NAMES = frozenset((*_DAYS, *(day[:3] for day in _DAYS)))
_ZONE = re.compile(r"UTC|[A-Z][A-Za-z]+(/[A-Za-z0-9_+-]+)+", re.ASCII)
_VALUE = re.compile(r"(\*|[0-9]+(\.[0-9]+)?(\.\.[0-9]+(\.[0-9]+)?)?)(/[0-9]+(\.[0-9]+)?)?", re.ASCII)
_LEAP_YEAR = 2024
_YEARS, _MONTHS, _MONTH_DAYS, _HOURS, _SIXTY = (1970, 2199), (1, 12), (1, 31), (0, 23), (0, 59)


def is_calendar(text: str) -> bool:
    """Tell whether systemd reads a text as a calendar event.

    Args:
        text: for example ``daily``, or ``Mon..Fri *-*-* 18:00:00 Europe/Berlin``.
    """
    parts = text.split(" ")
    if len(parts) > 1 and _ZONE.fullmatch(parts[-1]):
        parts = parts[:-1]
    if len(parts) == 1 and parts[0].lower() in _WORDS:
        return True
    if parts and _are_days(parts[0]):
        parts = parts[1:]
        if not parts:
            return True
    if parts and _is_date(parts[0]):
        parts = parts[1:]
        if not parts:
            return True
    return len(parts) == 1 and _is_time(parts[0])


def _are_days(text: str) -> bool:
    names = re.split(r",|\.\.", text.lower().rstrip(","))
    return all(name in _DAY_NAMES for name in names)


def _is_date(text: str) -> bool:
    fields = re.split(r"[-~]", text)
    ranges = (_YEARS, _MONTHS, _MONTH_DAYS)[-len(fields) :]
    return len(fields) in (2, 3) and _all_in(fields, ranges) and not _never(*fields[-2:])


def _never(month: str, day: str) -> bool:
    """Tell whether no month has such a day: systemd takes 30 February, and the timer never fires."""
    if not (month.isdigit() and day.isdigit()):
        return False
    return int(day) > calendar.monthrange(_LEAP_YEAR, int(month))[1]


def _is_time(text: str) -> bool:
    fields = text.split(":")
    return len(fields) in (2, 3) and _all_in(fields, (_HOURS, _SIXTY, _SIXTY))


def _all_in(fields: list[str], ranges: tuple[tuple[int, int], ...]) -> bool:
    return all(_is_in(field, *span) for field, span in zip(fields, ranges, strict=False))


def _is_in(field: str, least: int, most: int) -> bool:
    for value in field.split(","):
        if not _VALUE.fullmatch(value):
            return False
        numbers = value.partition("/")[0].replace("..", " ").split()
        if any(number != "*" and not least <= float(number) < most + 1 for number in numbers):
            return False
    return True
