# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From a TPM that was found at inspection to the only one that a host may join with."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask, keys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record as Tpm
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import tpm
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.compare import compare, compare_all
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import Standing, handed_over
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    COMPARED,
    Compared,
    Deployed,
    Record,
    compared_fields,
    compared_of,
    digest_of,
    place_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State

from tests.support import racks
from tests.unit.attestation.answers import raw
from tests.unit.bare_metal.test_kind import World, wanted

EK = raw("ecdsa", "ek").hex()
KEY = keys.endorsement_key(bytes.fromhex(EK)).sha256()
OTHER = "cd" * 32
FLEET = racks.fleet(3)
ONE, TWO, _ = FLEET


def said(server: ExpectedServer, collected: t.Any) -> dict[str, t.Any]:
    """Return what Ironic has of an inspection in which the collector left this."""
    data = racks.in_band(server)
    data["plugin_data"][tpm.COLLECTED] = collected
    return data


@pytest.mark.parametrize(
    ("collected", "read", "unreadable"),
    [
        ({"ek": EK}, KEY, []),
        ({"fault": "there is no /dev/tpmrm0"}, tpm.NONE, []),
        (None, None, []),
        ({}, None, []),
        ({"ek": EK, "fault": "both"}, KEY, []),
        ("ek", None, ["ironspan_tpm"]),
        ([EK], None, ["ironspan_tpm"]),
        ({"ek": 7}, None, ["ironspan_tpm.ek"]),
        ({"ek": ""}, None, ["ironspan_tpm.ek"]),
        ({"ek": [EK]}, None, ["ironspan_tpm.ek"]),
        ({"ek": "not a number"}, None, ["ironspan_tpm.ek"]),
        ({"ek": EK[:-2]}, None, ["ironspan_tpm.ek"]),
        ({"ek": EK + "00"}, None, ["ironspan_tpm.ek"]),
        ({"ek": "ab" * 50_000}, None, ["ironspan_tpm.ek"]),
        ({"ek": raw("ecdsa", "ak").hex()}, None, ["ironspan_tpm.ek"]),
    ],
)
def test_what_the_ramdisk_says_is_a_key_or_none_or_held_against_it(
    collected: t.Any, read: str | None, unreadable: list[str]
) -> None:
    inspection = read_inspection("in band", said(ONE, collected))
    assert (inspection.tpm, list(inspection.unreadable)) == (read, unreadable)
    held = [one.kind for one in compare(ONE, [inspection], Index(FLEET)) if one.part == "inspection"]
    assert held == ["unreadable"] * len(unreadable)


@pytest.mark.parametrize(
    ("declared", "collected", "message"),
    [
        (KEY, {"ek": EK}, None),
        ("", {"ek": EK}, None),
        ("", {"fault": "no"}, None),
        ("", None, None),
        (OTHER, {"ek": EK}, f"TPM: {OTHER[:16]} declared, {KEY[:16]} measured; look which mainboard"),
        (KEY, {"fault": "no"}, f"TPM: {KEY[:16]} declared, none measured; switch it on"),
        (KEY, None, f"TPM: {KEY[:16]} declared, none measured; inspect with the agent of ironspan"),
    ],
)
def test_what_is_declared_is_what_has_to_be_there(
    declared: str, collected: t.Any, message: str | None
) -> None:
    server = dataclasses.replace(ONE, tpm_ek_sha256=declared)
    inspection = read_inspection("in band", said(server, collected), racks.firmware(server))
    found = [str(one) for one in compare(server, [inspection], Index([server, TWO]))]
    assert len(found) == (message is not None)
    assert not message or message in found[0]


def test_two_servers_with_one_key_are_both_found() -> None:
    measured = {
        server.name: [read_inspection("in band", said(server, {"ek": EK}), racks.firmware(server))]
        for server in (ONE, TWO)
    }
    measured[FLEET[2].name] = [
        read_inspection("in band", said(FLEET[2], {"fault": "no"}), racks.firmware(FLEET[2]))
    ]
    found = [(one.server, one.message) for one in compare_all(FLEET, measured)]
    assert found == [
        ("gpu-1", f"{KEY[:16]} measured, which is that of gpu-2"),
        ("gpu-2", f"{KEY[:16]} measured, which is that of gpu-1"),
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_whose_key_is_declared_has_it_and_the_other_one_is_found(order: tuple[int, int]) -> None:
    own = dataclasses.replace(ONE, tpm_ek_sha256=KEY)
    fleet = [(own, TWO)[number] for number in order]
    measured = {
        server.name: [read_inspection("in band", said(server, {"ek": EK}), racks.firmware(server))]
        for server in fleet
    }
    assert [one.server for one in compare_all(fleet, measured)] == ["gpu-2"]


def run_of(world: World, collected: dict[str, t.Any], states: dict[str, State]) -> list[str]:
    """Let servers be redeployed whose ramdisk says this; return what was wrong."""
    for uuid, node in world.session.nodes.items():
        if node["name"] in collected:
            world.session.inventory[uuid]["plugin_data"][tpm.COLLECTED] = collected[node["name"]]
    return world.brought(states).problems


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three servers that were made available, and measured as declared, without a word of their TPMs."""
    made = World(tmp_path)
    made.brought({name: {**one, "inspect": False, "goal": "available"} for name, one in wanted().items()})
    made.measure()
    return made


def hosts(world: World) -> dict[str, str]:
    """Return the key of each host that was handed over, by its name."""
    import yaml

    children = yaml.safe_load((world.folder / "servers.yml").read_text())["all"]["children"]
    return {name: one.get(tpm.VARIABLE, "") for name, one in children["on_prem"]["hosts"].items()}


def test_what_was_found_is_the_only_one_that_the_host_may_have(world: World) -> None:
    assert run_of(world, {"gpu-1": {"ek": EK}, "gpu-2": {"fault": "no"}}, wanted()) == []
    assert hosts(world) == {"gpu-1": KEY, "gpu-2": "", "gpu-3": ""}
    # The next run has nothing to do, and writes the same.
    again = world.brought(wanted())
    assert (again.done, again.problems) == ([], [])
    assert again.left and again.left.before == again.left.after


@pytest.mark.parametrize("together", [True, False])
def test_a_server_that_has_the_key_of_another_one_is_refused(world: World, together: bool) -> None:
    collected = {"gpu-1": {"ek": EK}, "gpu-2": {"ek": EK}}
    states = wanted()
    if not together:
        assert run_of(world, collected, {"gpu-1": states["gpu-1"]}) == []
    (problem,) = run_of(world, collected, states)
    assert f"TPM: {KEY[:16]} measured, which is that of gpu-" in problem
    held = problem.partition(":")[0]
    assert held in ("gpu-1", "gpu-2") and (together or held == "gpu-2")
    assert held not in hosts(world) and "gpu-3" in hosts(world)


def test_a_check_foresees_the_key_that_is_known(world: World) -> None:
    run_of(world, {"gpu-1": {"ek": EK}}, wanted())
    foreseen = world.brought(wanted(redeploy=True), check=True)
    assert foreseen.left and foreseen.left.before == foreseen.left.after


def test_a_retired_server_claims_nothing(world: World) -> None:
    assert run_of(world, {"gpu-1": {"ek": EK}}, wanted()) == []
    node = next(one for one in world.session.nodes.values() if one["name"] == "gpu-1")
    node["retired"] = True
    states = wanted(redeploy=True)
    assert run_of(world, {"gpu-2": {"ek": EK}}, {"gpu-2": states["gpu-2"]}) == []


def test_a_declaration_of_later_takes_no_server_away_and_counts() -> None:
    compared = compared_of(ONE, [read_inspection("in band", said(ONE, {"ek": EK}))])
    deployed = Deployed("10.1.0.1", place_of(ONE), "ab" * 32, True, "")
    later = dataclasses.replace(ONE, tpm_ek_sha256=OTHER)
    standing = {ONE.name: Standing("active", Record(compared, deployed))}
    assert digest_of(later) == digest_of(ONE)
    assert handed_over([ONE], standing).hosts[ONE.name][1][tpm.VARIABLE] == KEY
    assert handed_over([later], standing).hosts[ONE.name][1][tpm.VARIABLE] == OTHER


@pytest.mark.parametrize("kept", [None, 7, KEY.upper(), "{{ 1 }}", KEY + "\n", [KEY], "a" * 100_000])
def test_what_is_no_digest_in_ironic_is_none(kept: t.Any) -> None:
    record = Record.of({"extra": {COMPARED: {"digest": "x", "labels": {}, "tpm": kept}}})
    assert record.compared == Compared("x", {}, tpm.NONE)


def test_what_is_recorded_is_read_back() -> None:
    fields = compared_fields(ONE, [read_inspection("in band", said(ONE, {"ek": EK}))])
    (kept,) = json.loads(json.dumps(fields)).values()
    compared = Record.of({"extra": {COMPARED: kept}}).compared
    assert compared is not None and compared.tpm == KEY


@pytest.mark.parametrize(("joins", "refused"), [(KEY, False), (OTHER, True)])
def test_a_host_joins_with_the_tpm_that_was_found_in_it(joins: str, refused: bool) -> None:
    """``joins`` is the key that the host's TPM has proved to have."""
    policy = ask.Policy("require", (0,), "device:/dev/tpmrm0", endorsement=KEY)
    record = Tpm(joins, "ecdsa", "", {}, "anna", "")
    if not refused:
        return ask.insist_on_maker(record, policy)
    with pytest.raises(AttestationError, match="node_attestation_ek_sha256 says"):
        ask.insist_on_maker(record, policy)
    return None
