# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site as a picture: both sides of the link, the servers on them, the racks, and the link itself.

It is drawn twice, broad for a screen and narrow for a phone; the style shows one of them. Each tile has its
state as a mark and in words, too.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from ironspan.pages.markup import Content, element
from ironspan.pages.parts import MARKS, Tone

_HEIGHT, _GAP, _HEAD = 66, 12, 44
"""Pixels: a tile, between two tiles, a side's heading."""
_LETTER, _SMALL_LETTER = 8.4, 6.5
"""Pixels of one letter of a name, and of the lines below it, about."""
MOST_TILES = 60
"""Of one side; with more, those with a problem come first and the others are counted."""
_ORDER: Sequence[Tone] = ("bad", "warn", "new", "idle", "ok")


class Tile(t.NamedTuple):
    """A server or a rack.

    Args:
        name: of it.
        tone: its state.
        lines: at most two lines about it.
    """

    name: str
    tone: Tone
    lines: tuple[str, ...] = ()


class Side(t.NamedTuple):
    """One end of the link."""

    title: str
    tiles: Sequence[Tile]


class Wan(t.NamedTuple):
    """The link, as it is known here: ``lines`` are two short ones."""

    tone: Tone
    lines: tuple[str, ...]


def picture(near: Side, far: Side, wan: Wan) -> Content:
    """Return the picture.

    Args:
        near: the control plane's side.
        far: the racks' side.
        wan: the link between them.
    """
    label = f"{near.title}: {_said(near)}. WAN: {' '.join(wan.lines)}. {far.title}: {_said(far)}."
    return element(
        "figure", _broad(near, far, wan, label), _narrow(near, far, wan, label), class_="picture card"
    )


def _said(side: Side) -> str:
    wrong = [tile.name for tile in side.tiles if tile.tone in ("bad", "warn")]
    more = f", with a problem: {', '.join(wrong[:20])}" if wrong else ""
    return f"{len(side.tiles)} shown{more}"


def _svg(width: int, height: float, class_: str, label: str, content: Sequence[Content]) -> Content:
    return element(
        "svg", *content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height:.0f}",
        width=width, height=f"{height:.0f}", role="img", aria_label=label, class_=class_,
    )  # fmt: skip


def _broad(near: Side, far: Side, wan: Wan, label: str) -> Content:
    left, left_width, left_height = _box(near, 0, 0, 2, 152)
    gap = 136
    right, right_width, right_height = _box(far, left_width + gap, 0, 4, 138)
    height = max(left_height, right_height)
    y = min(left_height, right_height) / 2
    middle = left_width + gap / 2
    link = [
        element("line", class_=f"wan w-{wan.tone}", x1=left_width, y1=y, x2=left_width + gap, y2=y),
        element("text", f"{MARKS[wan.tone]} WAN", class_="head", x=middle, y=y - 12, text_anchor="middle"),
        *(
            element("text", line, class_="mute", x=middle, y=y + 22 + 16 * number, text_anchor="middle")
            for number, line in enumerate(wan.lines)
        ),
    ]
    return _svg(left_width + gap + right_width, height, "broad", label, [*left, *link, *right])


def _narrow(near: Side, far: Side, wan: Wan, label: str) -> Content:
    above, width, height = _box(near, 0, 0, 2, 146)
    gap = 78
    below, _, more = _box(far, 0, height + gap, 2, 146)
    x = 40
    link = [
        element("line", class_=f"wan w-{wan.tone}", x1=x, y1=height, x2=x, y2=height + gap),
        element("text", f"{MARKS[wan.tone]} WAN", class_="head", x=x + 16, y=height + 28),
        element("text", " ".join(wan.lines), class_="mute", x=x + 16, y=height + 48),
    ]
    return _svg(width, height + gap + more, "narrow", label, [*above, *link, *below])


def _box(side: Side, x: int, y: float, columns: int, width: int) -> tuple[list[Content], int, float]:
    tiles = list(side.tiles)
    left_out = len(tiles) - MOST_TILES
    if left_out > 0:
        tiles = sorted(tiles, key=lambda tile: _ORDER.index(tile.tone))[:MOST_TILES]
    rows = max(1, -(-len(tiles) // columns))
    whole = columns * (width + _GAP) + _GAP
    height = _HEAD + rows * (_HEIGHT + _GAP) + (24 if left_out > 0 else 0)
    drawn: list[Content] = [
        element("rect", class_="box", x=x + 1, y=y + 1, width=whole - 2, height=height - 2, rx=10),
        element("text", side.title, class_="head", x=x + _GAP + 2, y=y + 28),
    ]
    if not tiles:
        drawn.append(element("text", "none declared", class_="mute", x=x + _GAP + 2, y=y + _HEAD + 22))
    for number, tile in enumerate(tiles):
        at = x + _GAP + number % columns * (width + _GAP), y + _HEAD + number // columns * (_HEIGHT + _GAP)
        drawn.extend(_tile(tile, *at, width))
    if left_out > 0:
        words = f"and {left_out:,} more"
        drawn.append(element("text", words, class_="mute", x=x + _GAP + 2, y=y + height - 14))
    return drawn, whole, height


def _tile(tile: Tile, x: float, y: float, width: int) -> Iterator[Content]:
    tone = "ok" if tile.tone == "new" else tile.tone
    left, top = f"{x + 10:.0f}", f"{y + 22:.0f}"
    name = _short(tile.name, (width - 36) / _LETTER)
    mark = element(
        "text", MARKS[tile.tone], class_=f"f-{tone}", x=f"{x + width - 10:.0f}", y=top, text_anchor="end"
    )
    lines = [
        element(
            "text",
            _short(line, (width - 14) / _SMALL_LETTER),
            class_="mute",
            x=left,
            y=f"{y + 40 + 16 * number:.0f}",
        )
        for number, line in enumerate(tile.lines[:2])
    ]
    frame = {"x": f"{x:.0f}", "y": f"{y:.0f}", "width": width, "height": _HEIGHT, "rx": 7}
    yield element(
        "g",
        element("title", "\n".join([tile.name, *filter(None, tile.lines)])),
        element("rect", class_=f"t-{tone}", **frame),
        mark,
        element("text", name, class_="head", x=left, y=top),
        lines,
    )


def _short(words: str, room: float) -> str:
    return words if len(words) <= room else f"{words[: int(room) - 1]}…"
