# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The picture of Ironic's states has all of them, with what a run asks for, and nothing lies over another."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_states import MOVES, STATES

from tools import reference, states_picture

SVG = "{http://www.w3.org/2000/svg}"


def boxes() -> dict[str, tuple[float, float, float, float, str]]:
    """Return left, top, right, bottom and what is written below, by the name of the state."""
    elements = list(ElementTree.fromstring(states_picture.picture()))
    found = {}
    for at, element in enumerate(elements):
        if element.tag == f"{SVG}rect" and element.get("class") != "back":
            x, y, width, height = (float(element.get(key, "")) for key in ("x", "y", "width", "height"))
            name, below = ("".join(one.itertext()) for one in elements[at + 1 : at + 3])
            found[name] = (x, y, x + width, y + height, below)
    return found


def test_every_state_is_there_once_with_what_is_done_in_it() -> None:
    drawn = boxes()
    assert drawn.keys() == STATES.keys()
    for name, state in STATES.items():
        below = drawn[name][4]
        if state.sort in ("settled", "failed"):
            wanted = [f"{move.verb} (wipes)" if move.wipes else move.verb for move in MOVES[name]]
            assert below == ", ".join(wanted), name
        else:
            assert below, name


def test_no_box_lies_over_another_or_out_of_the_picture() -> None:
    drawn = boxes()
    for (one, a), (other, b) in itertools.combinations(drawn.items(), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], f"{one} and {other}"
    assert max(box[2] for box in drawn.values()) <= states_picture.WIDTH


def test_every_way_out_of_a_state_is_an_arrow() -> None:
    picture = states_picture.picture()
    for end in ("then", "failed"):
        kind = {"then": "goes", "failed": "fails"}[end]
        assert picture.count(f'marker-end="url(#{kind})"') == sum(
            bool(getattr(state, end)) for state in STATES.values()
        )


def test_it_is_a_page_that_is_kept_fresh() -> None:
    assert reference.ROOT / "docs" / "bare-metal-states.svg" in reference.pages()
