# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What people read of nodes in repair, and what the program is told."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ironspan.gpu_repair import people, settings
from ironspan.gpu_repair.controller import unsound
from ironspan.gpu_repair.model import State
from ironspan.program.settings import SettingsError
from tests.unit.gpu_repair.racks import LIMITS, NOW, Racks

GOOD: dict[str, t.Any] = {
    "server": "https://10.0.0.1:6443",
    "ca": "/ca",
    "certificate": "/crt",
    "key": "/key",
    "nodes": {"gpu-1": "rack-1", "gpu-2": ""},
    "tests": "A01,A03",
    "classes": {"xid 79": "A3", "nvml gpu_lost": "A3", "dcgm DCGM_FR_PCIE_WIDTH": "A4"},
    "mode": "watch",
    "empty_dir_data": "refuse",
    "limits": {},
}


def in_triage() -> Racks:
    """Return racks whose first node waits for a person."""
    racks = Racks({f"n{i}": "rack" for i in range(3)})
    for name in racks.racks:
        racks.see(name)
    racks.go()
    racks.event("n0", "xid 54")
    for _ in range(3):
        racks.go(seconds=61)
    assert racks.state("n0") is State.TRIAGE
    return racks


def test_the_table_has_those_in_repair_and_what_comes_next() -> None:
    racks = in_triage()
    told = {"racks": {"n0": "rack-7"}, "waiting": {"n2": "1 of 1 nodes are out of service already"}}
    found = people.rows(list(racks.nodes.values()), told)
    assert [row.node for row in found] == ["n0", "n2"]
    assert found[0].rack == "rack-7"
    assert found[0].worst == "A4 xid 54, GPU-0"
    assert "ironspan gpu release n0 --reason" in found[0].next
    lines = people.table(found)
    assert lines[0].split() == ["NODE", "RACK", "STATE", "SINCE", "WORST", "NEXT"]
    assert (
        len({line.index(word) for line, word in zip(lines, ("STATE", "triage", "ready"), strict=True)}) == 1
    )
    assert len(people.rows(list(racks.nodes.values()), {}, everything=True)) == 3


def test_the_head_tells_of_breaker_storm_and_frost() -> None:
    told = {"mode": "repair", "out": 2, "most_out": 4, "nodes": 20, "at_work": 1, "most_at_once": 4}
    (line,) = people.head(told)
    assert line == "mode repair: 2 of at most 4 nodes out of service (of 20), 1 of at most 4 in repair"
    assert len(people.head({**told, "frozen": "why", "storm": 9})) == 3
    assert "has told nothing yet" in people.head({})[0]


def test_a_story_says_why_and_what_to_do() -> None:
    racks = in_triage()
    story = "\n".join(people.story(racks.nodes["n0"], {"waiting": {"n0": "for you"}}))
    for text in (
        "n0: triage since ",
        "evidence: A4 xid 54",
        "waits: for you",
        "to do: look at it",
        "history:",
    ):
        assert text in story
    assert "suspect: A4 xid 54, GPU-0" in story


def test_a_dossier_has_serials_and_nothing_that_a_terminal_obeys() -> None:
    racks = in_triage()
    racks.write("n0", {"ironspan.io/gpu-action-done": '{"id": "1", "detail": "\\u001b[31mred"}'})
    racks.nodes["n0"]["metadata"]["annotations"]["ironspan.io/gpu-release"] = "no JSON \x1b[2J"
    events = [{"lastTimestamp": "now", "reason": "GpuRepairTriage", "message": "x\x07"}]
    text = people.dossier(racks.nodes["n0"], events, {}, NOW)
    assert '"serial": "S0"' in text
    assert "GpuRepairTriage: x?" in text
    assert not [letter for letter in text if not (letter.isprintable() or letter == "\n")]


@pytest.mark.parametrize(
    ("silent", "ready", "says"),
    [
        (0, "ok", ""),
        (1, "ok", ""),
        (3, "ok", ""),
        (4, "ok", "4 of 12 GPU nodes are not heard of"),
        (0, "[-]etcd failed", "not ready"),
    ],
)
def test_frozen(silent: int, ready: str, says: str) -> None:
    """A third of all nodes does not fall silent by itself."""
    nodes = Racks({f"n{i}": "" for i in range(12)}).read()
    found = unsound(nodes, [node.name for node in nodes[:silent]], ready)
    assert says in found
    assert bool(found) is bool(says)


def test_settings_that_are_right(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(GOOD))
    read = settings.load(file)
    assert (read.limits, read.tests, read.nodes) == (LIMITS, ("A01", "A03"), GOOD["nodes"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"classes": {"xid 79": "A9"}}, "A0 to A5"),
        ({"classes": {"xyd 79": "A3"}}, "A0 to A5"),
        ({"limits": {"most_out_percent": 100}}, "from 1 to 50"),
        ({"limits": {"most_out": 0}}, "from 1 to 1000"),
        ({"limits": {"windows": "monday"}}, "days and times"),
        ({"limits": {"bmc_password": "x"}}, "is not known"),
        ({"mode": "act"}, "watch or gate or repair"),
        ({"tests": ""}, "tests with commas"),
        ({"nodes": {"Gpu 1": "rack"}}, "the node's rack"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, change: dict[str, t.Any], says: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(SettingsError, match=says):
        settings.load(file)
