# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Times of schedules, as controllers take them."""

from __future__ import annotations

import datetime
import re
import zoneinfo

_FORM = re.compile(
    r"DTSTART(;TZID=(?P<zone>[A-Za-z0-9_+/-]+):(?P<local>\d{8}T\d{6})|:(?P<utc>\d{8}T\d{6})Z) "
    r"RRULE:(?P<rule>[A-Z]+=[A-Z0-9,+:-]+(;[A-Z]+=[A-Za-z0-9,+:-]+)*)"
)
_FREQUENCIES = ("MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
MOST_COUNT = 999


def fault_of(text: str) -> str:
    """Return why a controller would refuse a time, or rewrite it each run; empty when it takes it.

    The rules are those of AWX 24.6.1: one DTSTART with a time zone, one RRULE with an interval.
    """
    matched = _FORM.fullmatch(text)
    if not matched:
        return "is not of the form DTSTART;TZID=ZONE:DATETIME RRULE:FREQ=...;INTERVAL=..."
    if not _is_time(matched["local"] or matched["utc"]):
        return "begins at a time that there is not"
    zones = zoneinfo.available_timezones()
    # A machine without the list of zones knows none.
    if matched["zone"] and zones and matched["zone"] not in zones:
        return f"is in the zone {matched['zone']}, which there is not"
    parts = dict(part.split("=", 1) for part in matched["rule"].split(";"))
    if parts.get("FREQ") not in _FREQUENCIES:
        return f"has no FREQ of {', '.join(_FREQUENCIES)}"
    if not parts.get("INTERVAL", "").isdigit():
        return "has no INTERVAL"
    if re.search(r"[+-]?\d", parts.get("BYDAY", "")):
        return "has a number in BYDAY"
    if "COUNT" in parts and ("UNTIL" in parts or not 0 < _number(parts["COUNT"]) <= MOST_COUNT):
        return f"has a COUNT with UNTIL, or one over {MOST_COUNT}"
    if "UNTIL" in parts and not re.fullmatch(r"\d{8}T\d{6}Z", parts["UNTIL"]):
        return "has an UNTIL that is not in UTC (with Z)"
    return ""


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.strptime(text, "%Y%m%dT%H%M%S")
    except ValueError:
        return False
    return True


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
