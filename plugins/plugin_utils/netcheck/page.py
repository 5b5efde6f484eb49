# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The report as text: a matrix, a few lines of figures, and what is wrong with what fixes it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import NOTICE, PROBLEM, names

MARKS = {PROBLEM: "✗", NOTICE: "!"}


def page(report: Mapping[str, t.Any]) -> str:
    """Return the page.

    Args:
        report: as ``report.examine`` returns it.
    """
    return "\n".join(_lines(report))


def problems(count: int) -> str:
    """Return a number of problems in words."""
    return f"{count} problem" if count == 1 else f"{count} problems"


def cell(way: Mapping[str, t.Any] | None) -> str:
    """Return what lies between two places in a few characters."""
    if way is None:
        return "-"
    if way["ms"] is None:
        return "no answer"
    return f"{way['ms']:.1f} ms" + (f", {way['loss']:.0%} lost" if way["loss"] else "")


def _lines(report: Mapping[str, t.Any]) -> Iterator[str]:
    asked = report["asked"]
    count = sum(found["level"] == PROBLEM for check in report["checks"] for found in check["findings"])
    verdict = "nobody answered" if report["exit_code"] == 4 else problems(count) if count else "well"
    yield (
        f"{report['site']}: {verdict}   ({asked['hosts_answered']} of {asked['hosts']} hosts answered, "
        f"{report['seconds']:.1f} s)"
    )
    for note in report["notes"]:
        yield f"- {note}"
    yield from _table(report["matrix"])
    for who, found in report["names"].items():
        where = "the cluster's DNS" if who == "cluster" else "caches on nodes"
        yield (
            f"a name of {where}: {found['ms']:.1f} ms, {found['worst_ms']:.1f} ms at worst "
            f"({found['hosts']} asked)"
        )
    for kind, found in report["tables"].items():
        yield (
            f"{kind}: {found['count']} of {found['most']} entries ({found['share']:.0%}) "
            f"at the fullest host, {found['host']}"
        )
    for level, mark in MARKS.items():
        for check in report["checks"]:
            for found in check["findings"]:
                if found["level"] == level:
                    hosts = f"{names(found['hosts'])}: " if found["hosts"] else ""
                    yield f"{mark} {check['name']}: {hosts}{found['what']}"
                    yield f"    -> {found['remedy']}"
    well = [check["name"] for check in report["checks"] if not check["findings"]]
    if well and asked["hosts_answered"]:
        yield f"✓ {', '.join(well)}"


def _table(matrix: Mapping[str, Mapping[str, t.Any]]) -> Iterator[str]:
    if not matrix:
        return
    columns = sorted({there for row in matrix.values() for there in row})
    rows = [["from \\ to", *columns]]
    rows += [[here, *(cell(row.get(there)) for there in columns)] for here, row in matrix.items()]
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
