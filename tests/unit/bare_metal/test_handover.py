# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers become hosts of the inventory: which of them, with what, and that nothing vanishes or slips in."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import facts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import (
    LOGIN,
    Standing,
    as_file,
    handed_over,
    said_of_held,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory_file import InventoryFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    COMPARED,
    DEPLOYED,
    Compared,
    Deployed,
    Record,
    compared_fields,
    deployed_fields,
    differed_fields,
    digest_of,
    place_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.values import rack_group
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.names import value_problem
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from hypothesis import given
from hypothesis import strategies as st

from tests.support import racks

ONE, TWO = racks.fleet(2)
SHA256 = "ab" * 32


def standing(server: ExpectedServer, **differences: t.Any) -> Standing:
    """Return a server that runs and is what it shall be, but for some differences."""
    deployed = Deployed("10.1.0.1", place_of(server), SHA256, True, "2026-11-01T00:00:00+00:00")
    values: dict[str, t.Any] = {
        "state": "active",
        "compared": Compared(digest_of(server), facts.labels_of(server)),
        "deployed": deployed,
        **differences,
    }
    return Standing(values["state"], Record(values["compared"], values["deployed"]))


def test_what_runs_and_is_as_declared_is_a_host() -> None:
    handed = handed_over([ONE, TWO], {ONE.name: standing(ONE), TWO.name: standing(TWO)})
    assert handed.held == {}
    groups, variables = handed.hosts["gpu-1"]
    assert groups == ("on_prem", "nodes", "gpu", "rack_rack_1"[5:])
    assert variables == {
        "ansible_host": "10.1.0.1",
        **LOGIN,
        "site_rack": "rack-1",
        "site_measured_labels": {
            "ironspan.io/rack": "rack-1",
            "ironspan.io/leaf-switch": "leaf-1-0",
            "ironspan.io/gpu-model": "H100",
            "ironspan.io/nvlink-domain": "nvl-1",
        },
    }


MOVED = dataclasses.replace(ONE, rack="rack-9")
OLD = Deployed("10.1.0.1", "rack-1 U1", SHA256, True, "")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Standing(None), "Ironic does not know it"),
        (standing(ONE, state="manageable"), "it is 'manageable' in Ironic, not 'active'"),
        (standing(ONE, state="deploy failed"), "it is 'deploy failed'"),
        (standing(ONE, deployed=None), "has written no operating system to it; redeploy it"),
        (standing(ONE, compared=None), "it was not compared with what is declared now, or differs from it"),
        (standing(ONE, compared=Compared("of before", {})), "it was not compared with what is declared now"),
        (
            standing(ONE, deployed=OLD._replace(place="rack-9 U40")),
            "it is declared in rack-1 U1, and its system was written for rack-9 U40; redeploy it",
        ),
    ],
)
def test_everything_else_is_held_with_the_reason(found: Standing, reason: str) -> None:
    handed = handed_over([ONE, TWO], {ONE.name: found, TWO.name: standing(TWO)})
    assert list(handed.hosts) == ["gpu-2"]
    assert reason in handed.held["gpu-1"]


def test_a_site_that_measures_nothing_hands_over_what_runs() -> None:
    handed = handed_over(
        [ONE], {ONE.name: standing(ONE, compared=None, deployed=OLD._replace(inspected=False))}
    )
    assert handed.hosts["gpu-1"][1]["site_measured_labels"]["ironspan.io/gpu-model"] == "H100"


def test_the_groups_of_a_server() -> None:
    plain = dataclasses.replace(ONE, gpu_count=0, gpu_model="", group="user_storage")
    handed = handed_over([plain], {ONE.name: standing(plain)})
    assert handed.hosts["gpu-1"][0] == ("on_prem", "nodes", "rack_1", "user_storage")


@pytest.mark.parametrize(
    ("rack", "group"),
    [("a", "rack_a"), ("rack-1", "rack_1"), ("Rack_B", "rack_b"), ("r.1", "rack_r_1")],
)
def test_the_group_of_a_rack(rack: str, group: str) -> None:
    assert rack_group(rack) == group


def test_racks_whose_groups_would_be_one_are_refused() -> None:
    twin = dataclasses.replace(TWO, rack="rack.1")
    with pytest.raises(RemoteError, match=r"racks rack-1 and rack.1 would both be the group rack_1"):
        handed_over([ONE, twin], {})


def test_what_was_not_declared_is_labelled_by_what_was_measured() -> None:
    bare = dataclasses.replace(
        ONE,
        gpu_count=None,
        gpu_model="",
        nics=tuple(dataclasses.replace(nic, switch="", port="") for nic in ONE.nics),
    )
    inspections = [read_inspection("in band", racks.in_band(ONE))]
    labels = facts.labels_of(bare, inspections)
    assert labels["ironspan.io/gpu-model"] == "H100"
    assert labels["ironspan.io/leaf-switch"] == "leaf-1-0.dc1.example"
    assert "ironspan.io/gpu-model" not in facts.labels_of(dataclasses.replace(bare, gpu_count=0), inspections)


@given(st.text())
def test_a_label_that_a_server_says_is_one_that_kubernetes_takes(text: str) -> None:
    value = facts.label_value(text)
    assert value_problem(value) == ""
    assert facts.taken_labels({facts.LEAF: value}) == ({facts.LEAF: value} if value else {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(
            st.sampled_from(
                [COMPARED, DEPLOYED, "extra", "digest", "labels", facts.RACK, "address", "place"]
            ),
            inner,
        ),
    )
)
def test_whatever_ironic_has_recorded_is_read(said: t.Any) -> None:
    record = Record.of({"extra": said, "provision_updated_at": "now"})
    if record.compared:
        assert all(value_problem(value) == "" for value in record.compared.labels.values())


def test_what_is_recorded_is_read_back() -> None:
    deployed = Deployed("10.1.0.1", "rack-1 U1", SHA256, True, "before")
    extra = {
        path.partition("/")[2]: value
        for fields in (compared_fields(ONE, ()), deployed_fields(deployed))
        for path, value in fields.items()
    }
    later = Record.of({"extra": extra, "provision_updated_at": "after"})
    assert later == Record(Compared(digest_of(ONE), facts.labels_of(ONE)), deployed)
    # A run was killed before it asked Ironic: what runs there is not what was recorded.
    assert Record.of({"extra": extra, "provision_updated_at": "before"}).deployed is None
    found = {
        "extra": {COMPARED: differed_fields("then")[f"extra/{COMPARED}"]},
        "inspection_finished_at": "then",
    }
    assert Record.of(found) == Record(differed=True)
    assert Record.of({**found, "inspection_finished_at": "later"}) == Record()
    injected = {DEPLOYED: {**deployed._asdict(), "address": "{{ lookup('pipe', 'id') }}"}}
    assert Record.of({"extra": injected, "provision_updated_at": "after"}).deployed is None


def test_the_file_is_whole_the_same_twice_and_says_what_is_held(tmp_path: Path) -> None:
    standings = {ONE.name: standing(ONE), TWO.name: standing(TWO, state="clean failed")}
    file = InventoryFile(str(tmp_path / "servers.yml"), lambda: [ONE, TWO])
    foreseen = file.brought(standings, check=True)
    assert not (tmp_path / "servers.yml").exists()
    left = file.brought(standings, check=False)
    assert foreseen == left
    assert left.notes == ("gpu-2 is no host of the inventory: it is 'clean failed' in Ironic, not 'active'",)
    written = (tmp_path / "servers.yml").read_bytes()
    assert written == left.after.encode() == as_file(handed_over([ONE, TWO], standings))
    children = yaml.safe_load(written)["all"]["children"]
    assert {group: list(found["hosts"]) for group, found in children.items()} == {
        group: ["gpu-1"] for group in ("on_prem", "nodes", "gpu", "rack_1")
    }
    again = file.brought(standings, check=False)
    assert again.before == again.after == left.after
    assert [path.name for path in tmp_path.iterdir()] == ["servers.yml"]


def test_a_server_that_runs_does_not_vanish_because_another_list_is_named(tmp_path: Path) -> None:
    standings = {ONE.name: standing(ONE), TWO.name: standing(TWO)}
    path = str(tmp_path / "servers.yml")
    InventoryFile(path, lambda: [ONE, TWO]).brought(standings, check=False)
    with pytest.raises(RemoteError, match=r"would lose gpu-1, which run in Ironic"):
        InventoryFile(path, lambda: [TWO]).brought(standings, check=False)
    gone = {TWO.name: standings[TWO.name]}
    assert "gpu-1" not in InventoryFile(path, lambda: [TWO]).brought(gone, check=False).after


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=r"none/servers.yml cannot be written: No such file"):
        InventoryFile(str(tmp_path / "none" / "servers.yml"), lambda: [ONE]).brought({}, check=False)


def test_a_thousand_held_servers_are_not_a_thousand_lines() -> None:
    lines = said_of_held({f"gpu-{number}": "it is off" for number in range(1000)})
    assert len(lines) == 21 and lines[-1] == "and 980 more are none"
