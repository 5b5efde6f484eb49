# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Racks as a picture: every server in its place, held ones red with the reason, and texts that stay texts."""

from __future__ import annotations

import dataclasses
import itertools
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.elevation import (
    Place,
    declared,
    picture,
    places,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import Standing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    Compared,
    Deployed,
    Record,
    digest_of,
    place_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import racks

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</text><script>alert(1)</script>&\"'"


def runs(server: ExpectedServer) -> Standing:
    deployed = Deployed("10.0.0.1", place_of(server), "ab" * 32, True, "before")
    return Standing("active", Record(Compared(digest_of(server), {}), deployed))


def boxes(shown: list[Place]) -> Iterator[tuple[str, ElementTree.Element]]:
    """Yield what a box is called in full, and its rectangle."""
    for group in ElementTree.fromstring(picture(shown)).iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and box is not None
        yield title.text or "", box


def test_servers_are_hosts_held_or_not_begun() -> None:
    host, held, new = racks.fleet(3)
    shown = places([host, held, new], {host.name: runs(host), held.name: Standing("deploy failed")})
    assert [(place.colour, bool(place.reason)) for place in shown] == [
        ("host", False), ("held", True), ("new", True),
    ]  # fmt: skip
    drawn = dict(boxes(shown))
    (green,) = [title for title, box in drawn.items() if box.get("class") == "host"]
    assert f"{declared(host)}, as measured" in green
    (red,) = [title for title, box in drawn.items() if box.get("class") == "held"]
    assert "deploy failed" in red and "not 'active'" in red
    assert declared(held) in red and "as measured" not in red


def test_a_flat_server_says_why_it_is_held() -> None:
    server = dataclasses.replace(racks.server(0), height=1)
    text = picture(places([server], {server.name: Standing("clean failed")}))
    (line,) = [one for one in ElementTree.fromstring(text).iter(f"{SVG}text") if one.get("class") == "reason"]
    assert "clean failed" in (line.text or "")


@settings(max_examples=50)
@given(st.lists(racks.servers(), max_size=6, unique_by=lambda server: server.name), st.data())
def test_whatever_is_declared_is_drawn_inside_its_rack(
    servers: list[ExpectedServer], data: st.DataObject
) -> None:
    shown = [
        Place(
            server, "held", data.draw(st.text(st.characters(codec="utf-8", exclude_categories=["C"]))), EVIL
        )
        for server in servers
    ]
    root = ElementTree.fromstring(picture(shown))
    frames = [one for one in root if one.get("class") == "frame"]
    assert len(frames) == len({server.rack for server in servers})
    for _, box in boxes(shown):
        x, y, height = (float(box.get(key, "")) for key in ("x", "y", "height"))
        around = [
            frame
            for frame in frames
            if float(frame.get("x", "")) < x < float(frame.get("x", "")) + float(frame.get("width", ""))
        ]
        assert len(around) == 1
        top = float(around[0].get("y", ""))
        assert top <= y and y + height <= top + float(around[0].get("height", ""))


def test_servers_of_a_rack_do_not_lie_over_each_other() -> None:
    found = [box for _, box in boxes(places(racks.fleet(4), {}))]
    spans = sorted((float(box.get("y", "")), float(box.get("height", ""))) for box in found)
    assert all(y + height <= after for (y, height), (after, _) in itertools.pairwise(spans))


def test_texts_stay_texts() -> None:
    server = dataclasses.replace(racks.server(0), model=EVIL, rack=EVIL)
    for styled in (True, False):
        text = picture([Place(server, "held", EVIL, EVIL)], styled=styled)
        assert "<script" not in text and ("<style" in text) is styled
        assert ElementTree.fromstring(text).tag == f"{SVG}svg"
