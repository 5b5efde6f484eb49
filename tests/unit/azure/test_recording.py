# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The file with host keys of machines in Azure: compared, and brought to what is there."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.machines import Seen
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.recording import (
    Difference,
    difference,
    record,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.known_hosts import Entry, KnownHostsFile

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEJhc2U2NEJhc2U2NEJhc2U2NEJhc2U2NEJhc2U2NA"


def machine(name: str, identity: str, address: str = "10.0.0.4", state: str = "succeeded") -> Seen:
    return Seen(f"/{name}", identity, name, address, "westeurope", "1", "", state)


def entry(name: str, identity: str, address: str = "10.0.0.4") -> Entry:
    return Entry(address, name, (KEY,), identity)


def test_a_machine_is_missing_until_this_very_one_is_recorded_at_its_address() -> None:
    one = machine("etcd-1", "a")
    assert difference([one], []) == ([one], {}, {})
    assert difference([one], [entry("etcd-1", "a")]) == ([], {}, {})
    # Made again under its name and address, or moved.
    assert difference([one], [entry("etcd-1", "b")]) == ([one], {}, {"b": "etcd-1"})
    assert difference([one], [entry("etcd-1", "a", "10.0.0.9")]) == ([one], {}, {})


def test_who_cannot_be_logged_in_to_is_not_missing_and_what_people_wrote_never_left() -> None:
    assert difference([machine("x", "a", state="creating"), machine("y", "b", "")], []).missing == []
    assert difference([], [entry("bastion", "")]).left == {}


def test_of_two_machines_with_one_name_no_key_is_recorded(tmp_path: Path) -> None:
    file = KnownHostsFile(str(tmp_path / "known_hosts"), "azure_known_hosts")
    file.record([entry("etcd-1", "a")])
    found = difference([machine("etcd-1", "a"), machine("etcd-1", "b", "10.0.0.5")], file.entries())
    assert found == Difference([], {"etcd-1": "another machine has its name"}, {})
    assert record(file, found, nobody) == ([], [], found.doubtful)
    assert [one.identity for one in file.entries()] == ["a"]


@pytest.mark.parametrize("name", ["etcd-1", "another"])
@pytest.mark.parametrize("known", [True, False])
def test_a_second_machine_replaces_no_key_of_the_first(name: str, known: bool, tmp_path: Path) -> None:
    """One with the name, or in another network with the address, of a machine of the site."""
    file = KnownHostsFile(str(tmp_path / "known_hosts"), "azure_known_hosts")
    genuine, thief, late = machine("etcd-1", "a"), machine(name, "b"), machine("late", "c", "10.0.8.9")
    if known:
        file.record([entry("etcd-1", "a")])
    found = difference([genuine, thief, late], file.entries())
    done = record(file, found, lambda asked: {one.name: [f"ssh-ed25519 {one.identity}"] for one in asked})
    assert "another machine has its" in done.failed[name]
    recorded = [(one.identity, one.keys[0]) for one in file.entries()]
    assert recorded == [*([("a", KEY)] if known else []), ("c", "ssh-ed25519 c")]


def test_what_could_be_read_is_recorded_and_the_rest_is_named(tmp_path: Path) -> None:
    file = KnownHostsFile(str(tmp_path / "known_hosts"), "azure_known_hosts")
    file.record([entry("gone", "z", "10.0.0.7")])
    found = difference([machine("etcd-1", "a"), machine("etcd-2", "b", "10.0.0.5")], file.entries())
    done = record(file, found, lambda _: {"etcd-1": [KEY], "etcd-2": "no agent"})
    assert done == (["etcd-1"], ["gone"], {"etcd-2": "no agent"})
    assert [one.name for one in file.entries()] == ["etcd-1"]


def test_where_nothing_differs_nobody_is_asked_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    done = record(KnownHostsFile(str(path), "azure_known_hosts"), Difference([], {}, {}), nobody)
    assert done == ([], [], {})
    assert not path.exists()


def nobody(machines: Sequence[Seen]) -> t.Any:
    """Fail where keys are read although none is missing."""
    raise AssertionError(machines)
