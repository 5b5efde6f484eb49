# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The doctor's report as one page of text: problems first, each with what fixes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import NOTICE, PROBLEM, names

_WORDS = {True: "asked", False: "NOT asked"}
MARKS = {PROBLEM: "✗", NOTICE: "!"}


def page(report: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        report: as ``table.examine`` returns it.
    """
    return "\n".join(_lines(report))


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    asked, checks = report["asked"], report["checks"]
    counts = {level: sum(len(_of(check, level)) for check in checks) for level in MARKS}
    yield (
        f"{report['site']}: {_verdict(report, counts)}   "
        f"({asked['hosts_answered']} of {asked['hosts']} hosts answered, "
        f"API {_WORDS[asked['api']]}, etcd {_WORDS[asked['etcd']]}, {report['seconds']:.1f} s)"
    )
    for note in report["notes"]:
        yield f"- {note}"
    for level, mark in MARKS.items():
        for check in checks:
            for finding in _of(check, level):
                hosts = f"{names(finding['hosts'])}: " if finding["hosts"] else ""
                yield f"{mark} {check['name']}: {hosts}{finding['what']}"
                yield f"    -> {finding['remedy']}"
    well = [check["name"] for check in checks if check["verdict"] == "ok"]
    if well:
        yield f"✓ {', '.join(well)}"
    silent: dict[str, list[str]] = {}
    for check in checks:
        if check["verdict"] == "not asked":
            silent.setdefault(check["because"], []).append(check["name"])
    for because, left_out in silent.items():
        yield f"? not looked at: {', '.join(left_out)}: {because}"


def _of(check: Mapping[str, Any], level: str) -> list[Mapping[str, Any]]:
    return [finding for finding in check["findings"] if finding["level"] == level]


def _verdict(report: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    if report["exit_code"] == 4:
        return "nobody answered"
    notices = f", {counts[NOTICE]} to know" if counts[NOTICE] else ""
    if report["healthy"]:
        return f"healthy{notices}"
    return f"{counts[PROBLEM]} {'problem' if counts[PROBLEM] == 1 else 'problems'}{notices}"
