# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Times of schedules, as controllers take them."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_FORM = re.compile(
    r"DTSTART(;TZID=(?P<zone>[A-Za-z0-9_+/-]+):(?P<local>\d{8}T\d{6})|:(?P<utc>\d{8}T\d{6})Z) "
    r"RRULE:(?P<rule>[A-Z]+=[A-Z0-9,+:-]+(;[A-Z]+=[A-Za-z0-9,+:-]+)*)"
)
_FREQUENCIES = ("MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
MOST_COUNT = 999
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_NUMBERS = {
    "BYMONTH": (1, 12),
    "BYMONTHDAY": (1, 31),
    "BYYEARDAY": (1, 366),
    "BYWEEKNO": (1, 53),
    "BYSETPOS": (1, 366),
    "BYHOUR": (0, 23),
    "BYMINUTE": (0, 59),
    "BYSECOND": (0, 59),
    "BYEASTER": (0, 366),
}
"""Smallest and largest, unsigned: RFC 5545, 3.3.10, and Easter as dateutil has it, by which AWX reads."""
_FROM_THE_END = ("BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS", "BYEASTER")
_PARTS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "WKST", *_NUMBERS)
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


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
    written = [part.partition("=")[::2] for part in matched["rule"].split(";")]
    parts = dict(written)
    if len(parts) < len(written):
        return "says a part of its RRULE twice"
    return _fault_of_parts(parts) or _fault_of_end(parts, matched["local"] or matched["utc"] + "Z")


def _fault_of_parts(parts: Mapping[str, str]) -> str:
    if unknown := [name for name in parts if name not in _PARTS]:
        near = nearest(unknown[0], _PARTS)
        return f"has {unknown[0]}, which no RRULE has{f', and {near} may be meant' if near else ''}"
    if parts.get("FREQ") not in _FREQUENCIES:
        return f"has no FREQ of {', '.join(_FREQUENCIES)}"
    if not _number(parts.get("INTERVAL", "")):
        return "has no INTERVAL, or none of 1 or more"
    if re.search(r"[+-]?\d", parts.get("BYDAY", "")):
        return "has a number in BYDAY"
    for name in ("BYDAY", "WKST"):
        if name in parts and not set(parts[name].split(",")) <= set(_DAYS):
            return f"has a {name} that is none of {', '.join(_DAYS)}"
    for name, (least, most) in _NUMBERS.items():
        for text in parts[name].split(",") if name in parts else ():
            signed = re.fullmatch(r"([+-]?)([0-9]{1,3})", text)
            if not signed or not least <= int(signed[2]) <= most or (signed[1] and name not in _FROM_THE_END):
                return f"has a {name} that is not between {least} and {most}"
    return ""


def _fault_of_end(parts: Mapping[str, str], begin: str) -> str:
    """Return why a rule of known parts would end wrongly, or never begin."""
    if "COUNT" in parts and ("UNTIL" in parts or not 0 < _number(parts["COUNT"]) <= MOST_COUNT):
        return f"has a COUNT with UNTIL, or one over {MOST_COUNT}"
    until = parts.get("UNTIL")
    if until is not None and not (re.fullmatch(r"\d{8}T\d{6}Z", until) and _is_time(until[:-1])):
        return "has an UNTIL that is no time in UTC (with Z)"
    # In a zone of its own a day may make no difference.
    compared = len(until or "") if begin.endswith("Z") else len("20260101")
    if until is not None and until[:compared] < begin[:compared]:
        return "ends before it begins"
    days = [int(text) for text in parts.get("BYMONTHDAY", "1").split(",")]
    months = [int(text) for text in parts.get("BYMONTH", "1").split(",")]
    if min(map(abs, days)) > max(_LONGEST_MONTHS[month - 1] for month in months):
        return "has a day that its months do not have"
    return ""


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.strptime(text, "%Y%m%dT%H%M%S")
    except ValueError:
        return False
    return True


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
