# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Removal: makers before what they make, on past failures, and the network's own rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from ironspan.lab import cgroups, network, removal
from ironspan.lab.errors import LabError
from ironspan.lab.layout import Layout
from ironspan.lab.state import Resource

MADE = [
    Resource("nft_table", "t"),
    Resource("namespace", "n"),
    Resource("link", "b"),
    Resource("process", "wan"),
    Resource("mirror", "nginx"),
    Resource("mount", "/m"),
    Resource("cgroup", "c"),
    Resource("process", "host"),
    Resource("servers", "rack"),
]


def test_what_makes_goes_first_then_backwards() -> None:
    assert [r.name for r in removal.order(MADE)] == ["rack", "nginx", "host", "wan", "c", "/m", "b", "n", "t"]


def test_every_kind_that_is_recorded_can_be_removed() -> None:
    kinds = {resource.kind for resource in MADE} | {"unit", "tree"}
    assert set(removal._REMOVERS) == kinds


def test_one_failure_does_not_keep_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []

    def remove(_: Path, name: str) -> None:
        if name in ("b", "c"):
            raise LabError(f"{name} is busy")
        removed.append(name)

    monkeypatch.setattr(removal, "_REMOVERS", dict.fromkeys(removal._REMOVERS, remove))
    told: list[str] = []
    with pytest.raises(LabError, match=r"lab down` again") as caught:
        removal.remove_all(tmp_path, MADE, lambda resource: told.append(resource.name))
    assert removed == told == ["rack", "nginx", "host", "wan", "/m", "n", "t"]
    assert "link b: b is busy" in str(caught.value)
    assert "cgroup c: c is busy" in str(caught.value)


def test_machine_never_forwards_out_of_a_lab_bridge() -> None:
    rules = network.firewall_rules(Layout("lab", 3, 1, 1))
    assert "table inet ironspan_lab3" in rules
    for bridge in ("isa3", "isr3"):
        assert f'iifname "{bridge}" oifname != "{bridge}" drop' in rules
        assert f'oifname "{bridge}" iifname != "{bridge}" drop' in rules


def test_network_records_every_device_and_namespace_of_both_sites() -> None:
    names = {(r.kind, r.name) for r in network.resources(Layout("lab", 3, 1, 1))}
    assert names == {
        ("nft_table", "ironspan_lab3"),
        ("namespace", "islab3-a"), ("namespace", "islab3-r"),
        ("link", "isa3"), ("link", "isr3"), ("link", "isa3-rt"), ("link", "isr3-rt"),
    }  # fmt: skip


def test_index_whose_addresses_the_machine_uses_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "devices", lambda: {"lo", "isr4"})
    routes = [{"dst": "default"}, {"dst": "10.98.3.0/24"}, {"dst": "10.98.11.5"}, {"dst": "10.99.0.0/16"}]
    monkeypatch.setattr(network, "_json", lambda _: routes)
    assert network.taken_indexes() == {4, 1, 5}


def test_cgroups_are_made_with_their_cpus_in_every_hierarchy(tmp_path: Path) -> None:
    for name in ("cpuset", "memory"):
        (tmp_path / name).mkdir()
    made = tmp_path / "cpuset" / "x"
    made.mkdir()
    for setting, value in (("cpuset.cpus", "0-3"), ("cpuset.mems", "0")):
        (tmp_path / "cpuset" / setting).write_text(value)
        (made / setting).write_text("\n")  # as the kernel makes it: empty
    folders = cgroups.create((str(tmp_path / "cpuset"), str(tmp_path / "memory")), "x", 1)
    assert [f.is_dir() for f in folders] == [True, True]
    assert (made / "cpuset.cpus").read_text() == "0-3"
    (made / "cpuset.cpus").write_text("1")
    cgroups.create((str(tmp_path / "cpuset"), str(tmp_path / "memory")), "x", 1)
    assert (made / "cpuset.cpus").read_text() == "1"


def test_members_are_counted_through_the_whole_tree(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "cgroup.procs").write_text("7\n")
    (tmp_path / "a/b/cgroup.procs").write_text("9\n8\n")
    assert cgroups.members(tmp_path) == [7, 8, 9]
    assert cgroups.members(tmp_path / "none") == []
