# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts together what hosts answered: latency and loss by place, and what is wrong."""

from __future__ import annotations

import statistics
import typing as t
from collections.abc import Callable, Iterable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import network_checks
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    PROBLEM,
    Content,
    Evidence,
    Finding,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.host_checks import reachable
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck import findings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.questions import places

SCHEMA = 1
HEALTHY, UNHEALTHY, NOTHING_ASKED = 0, 1, 4

Look = Callable[[Evidence], Iterable[Finding]]
CHECKS: tuple[tuple[str, Look], ...] = (
    ("reachable", reachable),
    ("loss and latency", findings.loss_and_latency),
    ("mtu", network_checks.mtu),
    ("mtu of pods", findings.pod_packets),
    ("dns", network_checks.dns),
    ("names", findings.names),
    ("api", network_checks.api_from_hosts),
    ("asymmetric routes", findings.asymmetric),
    ("duplicate networks", findings.duplicates),
    ("tables", findings.pressure),
)


class Way(t.NamedTuple):
    """What lies between two places, or within one.

    Args:
        ms: median round trip in milliseconds, None when no echo came back.
        worst_ms: the longest one.
        loss: share of the echoes that did not come back, 0 to 1.
        paths: pairs of hosts that were tried.
    """

    ms: float | None
    worst_ms: float | None
    loss: float
    paths: int


def matrix(evidence: Evidence) -> dict[str, dict[str, Way]]:
    """Return what lies between places, by the place that asked and the place that answered."""
    where = {host.name: place for place, hosts in places(evidence.site).items() for host in hosts}
    tried: dict[tuple[str, str], list[Content]] = {}
    for name, answer in evidence.answers():
        for path in answer["network"].get("paths") or ():
            tried.setdefault((where[name], where[path["peer"]]), []).append(path)
    found: dict[str, dict[str, Way]] = {}
    for (here, there), paths in sorted(tried.items()):
        times = [ms for path in paths for ms in path["ms"]]
        sent = sum(path["sent"] for path in paths)
        found.setdefault(here, {})[there] = Way(
            ms=round(statistics.median(times), 2) if times else None,
            worst_ms=max(times) if times else None,
            loss=round(1 - len(times) / sent, 4) if sent else 1.0,
            paths=len(paths),
        )
    return found


def examine(evidence: Evidence, started: str, seconds: float, notes: Iterable[str] = ()) -> Content:
    """Return the report.

    Args:
        evidence: the site and what hosts answered.
        started: ISO 8601.
        seconds: how long it took.
        notes: what could not be asked, and why.
    """
    answered = sum(1 for _ in evidence.answers())
    checks: list[Content] = [
        {
            "name": name,
            "findings": [{**found._asdict(), "hosts": list(found.hosts)} for found in look(evidence)],
        }
        for name, look in CHECKS
    ]
    healthy = not any(found["level"] == PROBLEM for check in checks for found in check["findings"])
    healthy = healthy and answered > 0
    return {
        "schema": SCHEMA,
        "kind": "net-check",
        "site": evidence.site.name,
        "started": started,
        "seconds": round(seconds, 1),
        "asked": {"hosts": len(evidence.hosts), "hosts_answered": answered},
        "healthy": healthy,
        "exit_code": NOTHING_ASKED if not answered else HEALTHY if healthy else UNHEALTHY,
        "notes": list(notes),
        "matrix": {
            here: {there: way._asdict() for there, way in row.items()}
            for here, row in matrix(evidence).items()
        },
        "names": _names(evidence),
        "tables": _tables(evidence),
        "checks": checks,
    }


def _names(evidence: Evidence) -> Content:
    """Return the time a name takes, in milliseconds: the median and the worst of all hosts."""
    asked: dict[str, list[float]] = {"cluster": [], "node": []}
    for _name, answer in evidence.answers():
        network = answer["network"]
        asked["cluster"] += [found["ms"] for found in [network.get("dns") or {}] if "ms" in found]
        asked["node"] += [found["ms"] for found in network.get("names") or () if "ms" in found]
    return {
        who: {"ms": round(statistics.median(times), 1), "worst_ms": max(times), "hosts": len(times)}
        for who, times in asked.items()
        if times
    }


def _tables(evidence: Evidence) -> Content:
    """Return how full the fullest connection and neighbour tables are, with the host."""
    found: Content = {}
    for name, answer in evidence.answers():
        tables = answer["network"].get("here", {}).get("pressure", {})
        for kind, table in tables.items():
            most = table.get("most") or table.get("thresholds", (0, 0, 0))[2]
            share = round(table["count"] / most, 4) if most else 0.0
            if kind not in found or share > found[kind]["share"]:
                found[kind] = {"host": name, "count": table["count"], "most": most, "share": share}
    return found
