# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The report as a picture: places on a circle, and between them latency and loss.

One SVG file; nothing outside of it is asked for.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import PROBLEM
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.findings import (
    LOSS_NOTICE,
    LOSS_PROBLEM,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import cell, problems

WIDTH, HEIGHT = 960, 640
_CENTRE_X, _CENTRE_Y, _RADIUS = WIDTH / 2, 330.0, 220.0
_WELL, _WORTH_KNOWING, _BAD = "#2b7a4b", "#b26a00", "#b3261e"
_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1c1c1c}.title{font-size:20px;font-weight:600}"
    ".place{fill:#eef2f6;stroke:#4a5a6a}.small{font-size:12px}.back{fill:#ffffff}"
)


def picture(report: Mapping[str, t.Any]) -> str:
    """Return the SVG document.

    Args:
        report: as ``report.examine`` returns it.
    """
    return "\n".join(_elements(report)) + "\n"


def colour(way: Mapping[str, t.Any]) -> str:
    """Return the colour of a line."""
    if way["ms"] is None or way["loss"] > LOSS_PROBLEM:
        return _BAD
    return _WORTH_KNOWING if way["loss"] > LOSS_NOTICE else _WELL


def _elements(report: Mapping[str, t.Any]) -> Iterator[str]:
    matrix = report["matrix"]
    names = sorted({*matrix, *(there for row in matrix.values() for there in row)})
    spots = {name: _spot(number, len(names)) for number, name in enumerate(names)}
    label = quoteattr(f"Network of {report['site']}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label={label}>'
    )
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>'
    yield _text("title", 24, 36, f"{report['site']}: round trips and loss", "start")
    yield _text("small", 24, 58, report["started"], "start")
    for number, here in enumerate(names):
        for there in names[number + 1 :]:
            yield from _line(matrix, here, there, spots)
    for name, (x, y) in spots.items():
        yield f'<rect class="place" x="{x - 85:.0f}" y="{y - 26:.0f}" width="170" height="52" rx="8"/>'
        yield _text("name", x, y - 4, name)
        within = matrix.get(name, {}).get(name)
        if within:
            yield _text("small", x, y + 15, f"within: {cell(within)}")
    count = sum(found["level"] == PROBLEM for check in report["checks"] for found in check["findings"])
    yield _text("small", 24, HEIGHT - 20, f"{problems(count)}; ironspan net check names them", "start")
    yield "</svg>"


def _text(kind: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(
    matrix: Mapping[str, t.Any], here: str, there: str, spots: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    ways = [way for way in (matrix.get(here, {}).get(there), matrix.get(there, {}).get(here)) if way]
    if not ways:
        return
    worst = max(ways, key=lambda way: (way["ms"] is None, way["loss"], way["ms"] or 0))
    (x1, y1), (x2, y2) = spots[here], spots[there]
    yield (
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" '
        f'stroke="{colour(worst)}" stroke-width="3"/>'
    )
    x, y = (x1 + x2) / 2, (y1 + y2) / 2 - 8
    yield _text("name", x, y, cell(worst))


def _spot(number: int, count: int) -> tuple[float, float]:
    if count == 1:
        return _CENTRE_X, _CENTRE_Y
    angle = math.pi + 2 * math.pi * number / count
    return _CENTRE_X + 1.4 * _RADIUS * math.cos(angle), _CENTRE_Y + _RADIUS * math.sin(angle)
