# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A lab grows and shrinks while it runs; what a smaller one no longer has is found again after a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab import host, keys, lab, names, processes, removal, resize, state, surroundings
from ironspan.lab.errors import LabError
from ironspan.lab.layout import Layout
from ironspan.lab.machine import Machine
from ironspan.lab.state import Resource, State


@pytest.fixture
def made(workstation: Machine) -> State:
    """A lab of 1 + 3 hosts, all of them recorded."""
    fresh = state.create("a", 1, 3, 1400, set())
    for one in fresh.layout.hosts:
        fresh.record(host.resources(workstation, fresh.folder, one))
    return fresh


def test_only_racks_change_and_the_state_says_so_first(made: State) -> None:
    opened = lab.Lab("a")._open(None, 2, None, None)
    assert opened.layout.rack == 2
    again = state.load("a")
    assert again is not None
    assert again.layout == opened.layout
    assert lab.Lab("a")._open(None, None, None, None).layout.rack == 2
    for azure, mtu in ((2, None), (None, 1500)):
        with pytest.raises(LabError, match=r"is there with 1\+2 hosts.*lab down --name a"):
            lab.Lab("a")._open(azure, 2, mtu, None)
    with pytest.raises(LabError, match="from 1 to 99"):
        lab.Lab("a")._open(None, 100, None, None)
    assert lab.Lab("a")._open(None, None, None, None).layout.rack == 2


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_what_is_too_many_is_what_was_recorded_and_is_not_in_the_layout(
    first: int, second: int, third: int
) -> None:
    records = [Resource("process", "wan"), Resource("process", "host-az-1"), Resource("link", "host-rack-99")]
    records += [Resource("process", f"host-rack-{n}") for n in range(1, max(first, second) + 1)]
    current = State(Layout("a", 1, 1, third), 1400, resources=records)
    assert [one.name for one in resize.surplus(current)] == [
        f"rack-{n}" for n in range(third + 1, max(first, second) + 1)
    ]


@pytest.mark.parametrize("was_node", [True, False])
def test_a_host_goes_with_all_it_has_and_nothing_else(
    made: State, workstation: Machine, was_node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.ensure(made.folder, made.layout)
    for one in made.layout.hosts:
        (host.folder(made.folder, one) / "upper/etc/kubernetes").mkdir(parents=True)
        if was_node:
            (host.folder(made.folder, one) / "upper/etc/kubernetes/kubelet.conf").touch()
        processes.remember(made.folder, host.process_name(one), 1)
    removed: list[Resource] = []
    monkeypatch.setattr(host, "stop", lambda *_: None)

    def remover(kind: str) -> Callable[[Path, str], None]:
        return lambda _, name: removed.append(Resource(kind, name))

    for kind in removal._REMOVERS:
        monkeypatch.setitem(removal._REMOVERS, kind, remover(kind))
    resize.resize(made, 1)
    said: list[tuple[str, str, str]] = []
    resize.remove_surplus(workstation, made, lambda *words: said.append(words))
    assert {one.name for one in (made.folder / "hosts").iterdir()} == {"az-1", "rack-1"}
    assert {path.name for path in (made.folder / "run").iterdir()} == {"host-az-1.json", "host-rack-1.json"}
    assert not list((made.folder / "ssh/hosts").glob("rack-[23]*"))
    assert removed
    assert all("rack-2" in one.name or "rack-3" in one.name or one.name.startswith("v") for one in removed), (
        removed
    )
    again = state.load("a")
    assert again is not None
    assert not set(again.resources) & set(removed)
    assert resize.surplus(again) == []
    ends = [words for name, step, words in said if step == "done"]
    assert len(ends) == 2
    assert all(("node_remove -e ironspan_hosts=rack-" in words) is was_node for words in ends)


def test_what_cannot_be_removed_stays_recorded(
    made: State, workstation: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, name: str) -> None:
        raise OSError("busy")

    monkeypatch.setattr(host, "stop", lambda *_: None)
    for kind in removal._REMOVERS:
        monkeypatch.setitem(removal._REMOVERS, kind, refuse)
    resize.resize(made, 2)
    with pytest.raises(LabError, match="run `lab up` again"):
        resize.remove_surplus(workstation, made, lambda *_: None)
    again = state.load("a")
    assert again is not None
    assert [one.name for one in resize.surplus(again)] == ["rack-3"]


def test_the_name_server_learns_of_a_new_size(made: State, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(processes, "running", lambda *_: 4711)
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))
    names.ensure(made.folder, made.layout)
    names.ensure(made.folder, made.layout)
    resize.resize(made, 4)
    names.ensure(made.folder, made.layout)
    assert told == [(4711, signal.SIGHUP)] * 2


def test_hosts_inherit_neither_nice_nor_umask(tmp_path: Path) -> None:
    before, mask = os.getpriority(os.PRIO_PROCESS, 0), os.umask(0o077)
    nice = os.nice(3)
    try:
        with surroundings.ordinary():
            (tmp_path / "folder").mkdir()
            assert os.getpriority(os.PRIO_PROCESS, 0) == 0 or os.geteuid() != 0
            pid = processes.spawn(["sleep", "600"], tmp_path, "sleeper")
            inherited = os.getpriority(os.PRIO_PROCESS, pid)
            processes.kill([pid])
        assert inherited == 0 or os.geteuid() != 0
        assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755
        assert os.umask(0o077) == 0o077
        assert os.getpriority(os.PRIO_PROCESS, 0) == nice
    finally:
        os.umask(mask)
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, 0, before)
