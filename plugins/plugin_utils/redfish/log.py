# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a BMC has logged: its system event log (SEL) and every other log of the server and of itself."""

from __future__ import annotations

import dataclasses
import datetime

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import Broken, Refused, plain

MOST = 200
"""Entries that are returned where nothing else is said, the newest."""
MOST_READ = 5000
"""Entries of one log that are read at most: BMCs keep some thousand and hand them out slowly."""
SEVERITIES = ("OK", "Warning", "Critical")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Args:
        log: name of the log.
        time: in UTC and ISO 8601; "" when the BMC gives none that can be read.
        severity: one of ``SEVERITIES``; "" when the BMC does not say.
        message: what happened.
        id: what the BMC calls it.
    """

    log: str
    time: str
    severity: str
    message: str
    id: str


def entries(bmc: Bmc, most: int = MOST, worse_than: str = "") -> list[Entry]:
    """Return what was logged, the newest last.

    Args:
        bmc: the BMC.
        most: how many, of all logs together.
        worse_than: only entries of a higher severity than this one.

    Raises:
        BmcError: the BMC cannot be asked.
    """
    least = SEVERITIES.index(worse_than) + 1 if worse_than else 0
    found: list[Entry] = []
    system = bmc.system()
    for owner in (system, *bmc.managers(system)):
        services = owner.get("LogServices")
        path = services.get("@odata.id") if isinstance(services, dict) else None
        for service in bmc.members(str(path), "list its logs") if path else ():
            found += _entries(bmc, service)
    wanted = [
        entry
        for entry in found
        if not least or (entry.severity in SEVERITIES and SEVERITIES.index(entry.severity) >= least)
    ]
    return sorted(wanted, key=lambda entry: entry.time)[-most:]


def _entries(bmc: Bmc, service: Document) -> list[Entry]:
    name = plain(service.get("Name") or service.get("Id") or "log")
    link = service.get("Entries")
    path = link.get("@odata.id") if isinstance(link, dict) else None
    found: list[Entry] = []
    seen: set[str] = set()
    while path and path not in seen and len(found) < MOST_READ:
        seen.add(str(path))
        try:
            page = bmc.get(str(path), "read its log")
        except (Refused, Broken) as error:
            # One log that cannot be read does not hide the others; it is said where it would stand.
            return [*found, Entry(name, "", "Warning", plain(error.message), "")]
        members = page.get("Members")
        for one in members if isinstance(members, list) else ():
            if isinstance(one, dict):
                found.append(_entry(name, one))
        path = page.get("Members@odata.nextLink")
    return found[:MOST_READ]


def _entry(log: str, one: Document) -> Entry:
    severity = one.get("Severity")
    return Entry(
        log,
        _time(one.get("Created")),
        severity if severity in SEVERITIES else "",
        plain(one.get("Message") or one.get("MessageId") or ""),
        plain(one.get("Id") or ""),
    )


def _time(value: object) -> str:
    try:
        found = datetime.datetime.fromisoformat(str(value))
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
        return found.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):  # the first and the last year have hours that UTC has not
        return ""
