# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Size profiles: every figure has a source, grows with the site, and the documentation says the same."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import sizes
from hypothesis import given
from hypothesis import strategies as st

DOCUMENT = Path(__file__).parents[3] / "docs" / "sizes.md"
FIGURES = [field.name for field in dataclasses.fields(sizes.Profile)]


def test_every_figure_has_a_source() -> None:
    assert set(sizes.SOURCES) == {*FIGURES, "joins_at_once"}
    assert all(sizes.SOURCES.values())


def test_sizes() -> None:
    assert tuple(profile.nodes for profile in sizes.PROFILES) == sizes.SIZES


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "pod_prefix"])
def test_figures_grow(name: str) -> None:
    values = [getattr(profile, name) for profile in sizes.PROFILES]
    assert values == sorted(values)


@given(st.integers(1, sizes.LARGEST), st.integers(20, 28))
def test_profile_holds_its_nodes(nodes: int, mask: int) -> None:
    profile = sizes.profile_for(nodes)
    smaller = [other for other in sizes.PROFILES if other.nodes < profile.nodes]
    assert profile.nodes >= nodes
    assert all(other.nodes < nodes for other in smaller)
    assert 2 ** (mask - profile.node_room(mask)) >= profile.nodes > 2 ** (mask - profile.node_room(mask) - 1)


def test_more_than_the_largest() -> None:
    assert sizes.profile_for(10**6) == sizes.PROFILES[-1]


def test_small_sites_keep_the_defaults() -> None:
    for size in (100, 500):
        assert (sizes.profile_for(size).api_server_args, sizes.profile_for(size).sysctls) == ({}, {})


@pytest.mark.parametrize(
    ("nodes", "cores", "cache", "servers"),
    [
        (1, 0, False, 2),
        (32, 0, False, 2),
        (33, 0, False, 3),
        (10, 1024, False, 4),
        (5000, 0, False, 313),
        (5000, 0, True, 40),
        (64, 64 * 128, False, 32),
        (64, 64 * 128, True, 4),
    ],
)
def test_dns_servers(nodes: int, cores: int, cache: bool, servers: int) -> None:
    assert sizes.dns_servers(nodes, cores, node_cache=cache) == servers


def test_documentation_has_the_same_figures() -> None:
    rows = {
        row[1]: [cell.strip().replace(",", "") for cell in row[2].split("|")]
        for row in re.finditer(r"^\| `(\w+)` \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    }
    shown = {
        name: [_shown(getattr(profile, name)) for profile in sizes.PROFILES]
        for name in (*FIGURES, "joins_at_once")
    }
    assert {name: cells[: len(sizes.PROFILES)] for name, cells in rows.items()} == shown


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " / ".join(map(str, value))
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
