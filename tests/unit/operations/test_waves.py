# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waves keep enough of every rack in service, leave nobody out and waste no time."""

from __future__ import annotations

import collections
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.stuck import (
    add_stuck,
    stuck_in,
    stuck_text,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import (
    held_back,
    hosts_out_of,
    rack_of,
    sizes,
    waves,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from hypothesis import given
from hypothesis import strategies as st

from tests.support.playbooks import ROOT


def host(name: str, rack: str = "", side: str = "on_prem") -> Host:
    return Host(name, "10.0.0.1", name, (side,), rack, {}, (), side, "", "1.36.4", ("base",), {})


def rack(name: str, count: int) -> list[Host]:
    return [host(f"{name}{number}", name) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("value", "size", "expected"),
    [
        (1, 30, 1),
        ("3", 30, 3),
        (5, 3, 5),
        ("10%", 30, 3),
        ("10%", 29, 2),
        ("10%", 3, 1),
        ("1%", 1, 1),
        ("100%", 7, 7),
        (" 50% ", 4, 2),
    ],
)
def test_how_many_of_a_rack(value: int | str, size: int, expected: int) -> None:
    assert hosts_out_of(value, size) == expected


@pytest.mark.parametrize("value", [0, "0", "0%", "101%", "-1", -1, "", "all", "1.5", "10 %", "10%%", "²"])
def test_what_is_no_number_of_hosts(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"is n"):
        hosts_out_of(value, 10)


@pytest.mark.parametrize(
    ("hosts", "maximum", "already", "fleet", "expected"),
    [
        ([], "10%", (), None, []),
        (rack("a", 3), 1, (), None, [["a1"], ["a2"], ["a3"]]),
        (rack("a", 3), "100%", (), None, [["a1", "a2", "a3"]]),
        # racks at the same time
        (rack("a", 2) + rack("b", 3), 1, (), None, [["a1", "b1"], ["a2", "b2"], ["b3"]]),
        # the percentage is of the rack, not of what is asked for
        (rack("a", 2), "50%", (), rack("a", 4), [["a1", "a2"]]),
        # a broken neighbour takes from the budget, of which one is always left
        (rack("a", 2), 2, ("a9",), [*rack("a", 2), host("a9", "a")], [["a1"], ["a2"]]),
        (rack("a", 2), 1, ("a9",), [*rack("a", 2), host("a9", "a")], [["a1"], ["a2"]]),
        # what is down anyway goes first, and nobody else with it when that is as many as may be out
        (rack("a", 3), 1, ("a3",), None, [["a3"], ["a1"], ["a2"]]),
        (rack("a", 4), 2, ("a3",), None, [["a3", "a1"], ["a2", "a4"]]),
        # without racks the sides are two
        ([host("x"), host("y"), host("z", "", "azure")], 1, (), None, [["x", "z"], ["y"]]),
    ],
)
def test_waves(
    hosts: Sequence[Host],
    maximum: int | str,
    already: Collection[str],
    fleet: Sequence[Host] | None,
    expected: list[list[str]],
) -> None:
    assert waves(hosts, maximum, already, fleet) == expected


def test_the_order_asked_for_is_kept_by_sizes() -> None:
    mixed = [host("a1", "a"), host("a2", "a"), host("b1", "b")]
    assert sizes(mixed, 1) == [1, 2]
    assert waves(mixed, 1) == [["a1", "b1"], ["a2"]]


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Host], list[Host], set[str]]:
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    fleet = [member for number, count in enumerate(counts) for member in rack("abcd"[number], count)]
    chosen = draw(st.permutations(fleet))[: draw(st.integers(0, len(fleet)))]
    out = draw(st.sets(st.sampled_from([member.name for member in fleet]), max_size=4))
    return fleet, list(chosen), out


LIMITS = st.one_of(st.integers(1, 5), st.integers(1, 100).map(lambda number: f"{number}%"))


@given(fleets(), LIMITS)
def test_everyone_once_and_never_too_many(
    drawn: tuple[list[Host], list[Host], set[str]], maximum: int | str
) -> None:
    fleet, hosts, out = drawn
    made = waves(hosts, maximum, out, fleet)
    assert sorted(name for wave in made for name in wave) == sorted(item.name for item in hosts)
    by_name = {item.name: item for item in fleet}
    members = collections.Counter(rack_of(item) for item in fleet)
    targets = {item.name for item in hosts}
    down = set(out)
    for number, wave in enumerate(made):
        assert wave
        for one, size in members.items():
            limit = hosts_out_of(maximum, size)
            added = {name for name in wave if rack_of(by_name[name]) == one} - down
            unavailable = added | {name for name in down if rack_of(by_name[name]) == one}
            broken = {name for name in out - targets if rack_of(by_name[name]) == one}
            assert not added or len(unavailable) <= max(limit, len(broken) + 1)
        # what a wave changed is back in service after it
        down -= set(wave)
        assert number == 0 or not set(wave) & out


@given(fleets(), LIMITS)
def test_sizes_cut_what_waves_made_as_it_was(
    drawn: tuple[list[Host], list[Host], set[str]], maximum: int | str
) -> None:
    fleet, hosts, out = drawn
    made = waves(hosts, maximum, out, fleet)
    by_name = {item.name: item for item in fleet}
    ordered = [by_name[name] for wave in made for name in wave]
    assert sizes(ordered, maximum, out, fleet) == [len(wave) for wave in made]


@given(fleets(), st.integers(1, 5))
def test_no_more_waves_than_the_slowest_rack_needs(
    drawn: tuple[list[Host], list[Host], set[str]], maximum: int
) -> None:
    _fleet, hosts, _out = drawn
    counts = collections.Counter(rack_of(item) for item in hosts)
    most = max(counts.values(), default=0)
    assert len(waves(hosts, maximum)) == -(-most // maximum)


@pytest.mark.parametrize(
    ("wave", "maximum", "stuck", "held"),
    [
        (["a2", "b2"], 1, [], []),
        (["a2", "b2"], 1, ["a1"], ["a2"]),
        (["a2", "a3", "b2"], 2, ["a1"], ["a3"]),
        (["a3", "a4"], 2, ["a1", "a2"], ["a3", "a4"]),
        # another attempt at the one that got stuck
        (["a1"], 1, ["a1"], []),
        # more at a time than now allowed, but nothing got stuck
        (["a1", "a2"], 1, [], []),
    ],
)
def test_a_stuck_host_keeps_its_place_in_the_budget_of_its_rack(
    wave: list[str], maximum: int, stuck: list[str], held: list[str]
) -> None:
    fleet = rack("a", 4) + rack("b", 4)
    hosts = [item for name in wave for item in fleet if item.name == name]
    assert held_back(hosts, maximum, stuck, fleet) == held


def test_what_got_stuck_is_remembered_until_the_end_of_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert stuck_in(folder) == {}
    add_stuck(folder, {})
    assert not folder.exists()
    add_stuck(folder, {"a1": ["pod x"]})
    assert add_stuck(folder, {"b1": ["pod y", "pod z"]}) == {"a1": ["pod x"], "b1": ["pod y", "pod z"]}
    assert stuck_text(stuck_in(folder)) == "a1: pod x\nb1: pod y\nb1: pod z"


def test_a_play_in_waves_names_the_hosts_of_its_wave() -> None:
    """``ansible_play_hosts`` has those of later waves too, which are not drained yet, and those left out."""
    wrong = [
        f"{path.name}: {task['name']}"
        for path in sorted((ROOT / "playbooks").glob("*.yml"))
        for play in yaml.safe_load(path.read_text(encoding="utf-8"))
        if "serial" in play
        for task in play["tasks"]
        for arguments in task.values()
        if isinstance(arguments, dict) and "ansible_play_hosts" in str(arguments.get("hosts"))
    ]
    assert wrong == []
