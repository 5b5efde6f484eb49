# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Racks as a picture: each server in its place, what was declared of it, and how it stands in Ironic.

Green is a host of the inventory, red is held, with the reason; grey was not begun. One SVG element, which
asks for nothing outside of it; whatever a file or a service said is text in it and nothing else.
"""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import (
    Standing,
    handed_over,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import digest_of

_UNIT, _WIDTH, _GAP, _TOP, _LEFT = 26, 360, 54, 64, 40
"""Pixels: a rack unit, a rack, between two racks, above them, and for the units' numbers."""
_LEAST_UNITS = 12
_LINE, _LONGEST = 13, 54
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1c1c1c}.rack{font-size:15px;font-weight:600}"
    ".unit{font-size:10px;fill:#6b6b6b}.name{font-weight:600}.frame{fill:#fafafa;stroke:#4a5a6a}"
    ".host{fill:#e7f3ec;stroke:#2b7a4b}.held{fill:#fbe9e7;stroke:#b3261e}.new{fill:#eef2f6;stroke:#8a97a5}"
    ".reason{fill:#b3261e}"
)
Colour = t.Literal["host", "held", "new"]


class Place(t.NamedTuple):
    """A server in a rack.

    Args:
        server: what was declared.
        colour: how it stands.
        state: what Ironic says, for people.
        reason: why it is no host of the inventory; "" where it is one.
        measured: whether what was measured is what is declared now.
    """

    server: ExpectedServer
    colour: Colour
    state: str
    reason: str
    measured: bool = False


def places(servers: Sequence[ExpectedServer], standings: Mapping[str, Standing]) -> list[Place]:
    """Return how servers stand.

    Args:
        servers: all that are expected.
        standings: by name; a server that has none is not known to Ironic.
    """
    held = handed_over(servers, standings).held
    found = []
    for server in servers:
        state, record = standings.get(server.name, Standing(None))
        colour: Colour = "new" if state is None else "held" if server.name in held else "host"
        measured = record.compared is not None and record.compared.digest == digest_of(server)
        reason = held.get(server.name, "")
        found.append(Place(server, colour, state or "not known to Ironic", reason, measured))
    return found


def picture(shown: Sequence[Place], *, styled: bool = True) -> str:
    """Return the picture as one SVG element, its racks from left to right in the order of their names.

    Args:
        shown: all servers.
        styled: whether it brings its own colours; a page that it is part of may have others.
    """
    return "\n".join(_elements(shown, styled)) + "\n"


def _elements(shown: Sequence[Place], styled: bool) -> Iterator[str]:
    by_rack = {
        rack: list(group)
        for rack, group in itertools.groupby(
            sorted(shown, key=lambda place: (place.server.rack, place.server.position)),
            lambda place: place.server.rack,
        )
    }
    tops = [place.server.position + place.server.height - 1 for place in shown]
    units = max([_LEAST_UNITS, *tops])
    width = _LEFT + len(by_rack) * (_WIDTH + _GAP)
    height = _TOP + units * _UNIT + 24
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="Racks">'
    )
    if styled:
        yield f"<style>{_STYLE}</style>"
    for number, (rack, members) in enumerate(by_rack.items()):
        left = _LEFT + number * (_WIDTH + _GAP)
        yield f'<text class="rack" x="{left}" y="{_TOP - 14}">{escape(_short(rack))}</text>'
        yield f'<rect class="frame" x="{left}" y="{_TOP}" width="{_WIDTH}" height="{units * _UNIT}"/>'
        for unit in range(1, units + 1):
            y = _TOP + (units - unit) * _UNIT + 17
            yield f'<text class="unit" x="{left - 6}" y="{y}" text-anchor="end">{unit}</text>'
        for place in members:
            yield from _box(place, left, units)
    yield "</svg>"


def _box(place: Place, left: int, units: int) -> Iterator[str]:
    server = place.server
    y = _TOP + (units - server.position - server.height + 1) * _UNIT
    height = server.height * _UNIT
    parts = f"{declared(server)}{', as measured' if place.measured else ''}"
    lines = [("name", f"{server.name}: {place.state}"), ("", parts), ("reason", place.reason)]
    whole = "\n".join(text for _, text in lines if text)
    yield f"<g><title>{escape(whole)}</title>"
    yield (
        f'<rect class={quoteattr(place.colour)} x="{left + 2}" y="{y + 1}" width="{_WIDTH - 4}" '
        f'height="{height - 2}" rx="4"/>'
    )
    # Of a flat server the reason is worth more than what was declared.
    room = max(1, (height - 6) // _LINE)
    kept = [line for line in lines if line[1]]
    if len(kept) > room and place.reason:
        kept = [("reason", f"{server.name}: {place.reason}")] if room == 1 else [kept[0], kept[-1]]
    for number, (kind, text) in enumerate(kept[:room]):
        line = f'<text class="{kind}" x="{left + 10}" y="{y + 16 + number * _LINE}">'
        yield f"{line}{escape(_short(text))}</text>"
    yield "</g>"


def declared(server: ExpectedServer) -> str:
    """Return what was declared of a server's parts, for people; "" when nothing was."""
    parts = [
        server.model,
        f"{server.gpu_count} x {server.gpu_model}" if server.gpu_count else "",
        f"{server.memory_gib} GiB" if server.memory_gib else "",
        *(f"{disks.count} x {disks.size_gb} GB" for disks in server.disks[:1]),
    ]
    return ", ".join(filter(None, parts))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
