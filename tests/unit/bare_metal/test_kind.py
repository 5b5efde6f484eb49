# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers as remote things of an Ironic in memory: what is asked, recorded, handed over, and kept."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.drift import drift_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory_file import InventoryFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

from tests.support import racks
from tests.support.ironic_in_memory import MemoryIronic

SERVERS = racks.fleet(3)
NODE = {"driver": "redfish", "inspect_interface": "agent"}
IMAGE = {"source": "http://192.0.2.1/disk.raw", "sha256": "ab" * 32, "format": "raw"}
RACKS = racks_of({"rack-1": {"network": "10.2.1.0/24", "first": "10.2.1.11", "gateway": "10.2.1.1"}})
RETIRED: dict[str, t.Any] = {
    "goal": "retired", "inspect": False, "image": {}, "host": {}, "clean": ["deploy.erase_devices"],
}  # fmt: skip


def wanted(**ends: t.Any) -> dict[str, State]:
    return {one.name: {**wanted_node(one, NODE, RACKS, IMAGE, True), **ends} for one in SERVERS}


class World:
    """One Ironic, and the files of one site.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: Path) -> None:
        self.session = MemoryIronic()
        self.folder = folder

    def kind(self) -> BareMetalServer:
        """Return the kind as a run opens it."""
        return BareMetalServer(
            lambda: IronicApi(self.session, sleep=lambda seconds: None),
            Account("ironspan", ("ssh-ed25519 AAAA",)),
            KnownHosts(str(self.folder / "known_hosts")),
            inventory=InventoryFile(str(self.folder / "servers.yml"), lambda: SERVERS),
            proofs=self.folder / "erased",
        )

    def brought(self, states: Mapping[str, State], **options: t.Any) -> Outcome:
        return bring(self.kind(), states, Consent(True), lambda text: None, **options)

    def measure(self, *broken: str) -> None:
        """Let the last inspections have said what was declared; the broken ones lack a GPU."""
        for uuid, node in self.session.nodes.items():
            server = next(one for one in SERVERS if one.name == node["name"])
            said = racks.in_band(server)
            if server.name in broken:
                del said["plugin_data"]["pci_devices"][0]
            self.session.inventory[uuid] = said
            self.session.firmware[uuid] = racks.firmware(server)

    @property
    def states(self) -> dict[str, str]:
        return {node["name"]: node["provision_state"] for node in self.session.nodes.values()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three servers that run, as they were declared."""
    made = World(tmp_path)
    first = made.brought(
        {name: {**state, "inspect": False, "goal": "available"} for name, state in wanted().items()}
    )
    assert first.problems == []
    made.measure()
    assert made.brought(wanted()).problems == []
    return made


def test_what_runs_is_handed_over_and_a_second_run_asks_two_questions(world: World) -> None:
    text = (world.folder / "servers.yml").read_text()
    assert [f"ansible_host: 10.2.1.{number}" in text for number in (11, 19, 27)] == [True] * 3
    assert "ironspan.io/gpu-model: H100" in text
    world.session.asked.clear()
    again = world.brought(wanted())
    assert (again.done, again.problems) == ([], [])
    assert world.session.asked == ["GET /nodes", "GET /ports"]
    assert again.left and again.left.before == again.left.after == text


def test_only_what_has_something_to_do_needs_a_conductor(world: World) -> None:
    world.session.alive = False
    assert world.brought(wanted()).problems == []
    world.session.asked.clear()
    problems = world.brought(wanted(redeploy=True)).problems
    assert [text.count("no conductor looks after it") for text in problems] == [1, 1, 1]
    assert world.session.asked == ["GET /nodes", "GET /ports", "GET /conductors"]


def test_a_check_says_what_the_file_will_have(tmp_path: Path) -> None:
    empty = World(tmp_path)
    foreseen = empty.brought(wanted(), check=True)
    assert foreseen.left and not (tmp_path / "servers.yml").exists()
    empty.brought(
        {name: {**state, "inspect": False, "goal": "available"} for name, state in wanted().items()}
    )
    empty.measure()
    empty.brought(wanted())
    assert (tmp_path / "servers.yml").read_text() == foreseen.left.after


def test_what_differs_is_held_and_inspected_again_by_the_next_run(world: World) -> None:
    named = {"gpu-2": wanted(redeploy=True)["gpu-2"]}
    world.measure("gpu-2")
    (problem,) = world.brought(named).problems
    assert "GPU: 7 of 8 H100 measured" in problem
    assert world.states == {"gpu-1": "active", "gpu-2": "manageable", "gpu-3": "active"}
    assert "gpu-2" not in (world.folder / "servers.yml").read_text()
    assert {(one.server, one.part) for one in drift_of(IronicApi(world.session), wanted())} == {
        ("gpu-2", "GPU"), ("gpu-2", "Ironic"),
    }  # fmt: skip
    world.measure()
    mended = world.brought(wanted())
    assert mended.problems == []
    assert mended.done[:2] == ["inspect it", "compare it with what was declared"]
    assert "gpu-2" in (world.folder / "servers.yml").read_text()
    assert drift_of(IronicApi(world.session), wanted()) == []


def test_a_redeployed_server_is_inspected_and_has_another_key(world: World) -> None:
    before = sorted((world.folder / "known_hosts").read_text().splitlines())
    with pytest.raises(RemoteError, match="need consent: take its operating system down"):
        bring(world.kind(), wanted(redeploy=True), Consent(), lambda text: None)
    outcome = world.brought({"gpu-1": wanted(redeploy=True)["gpu-1"]})
    assert [step.verb for step in outcome.things[0].steps] == [
        "deleted", "manage", "inspect", "compare", "provide", "active",
    ]  # fmt: skip
    after = sorted((world.folder / "known_hosts").read_text().splitlines())
    assert (before[0] == after[0], before[1:] == after[1:]) == (False, True)
    assert outcome.left and outcome.left.after == outcome.left.before


def test_a_retired_server_is_marked_erased_proven_and_no_host_any_more(world: World) -> None:
    outcome = world.brought({"gpu-3": wanted(**RETIRED)["gpu-3"]})
    assert outcome.problems == []
    (node,) = [one for one in world.session.nodes.values() if one["name"] == "gpu-3"]
    assert (node["provision_state"], node["retired"]) == ("manageable", True)
    assert node["asked_clean"]["clean_steps"] == [{"interface": "deploy", "step": "erase_devices"}]
    (file,) = (world.folder / "erased").iterdir()
    proof = json.loads(file.read_text())
    assert (proof["server"], proof["serial"], len(proof["disks"])) == ("gpu-3", SERVERS[2].serial, 11)
    assert "gpu-3" not in (world.folder / "servers.yml").read_text()
    assert world.brought({"gpu-3": wanted(**RETIRED)["gpu-3"]}).done == []


def test_a_proof_that_cannot_be_written_does_not_count(world: World) -> None:
    (world.folder / "erased").write_text("in the way")
    named = {"gpu-3": wanted(**RETIRED)["gpu-3"]}
    (problem,) = world.brought(named).problems
    assert "it was erased, and the proof" in problem
    (world.folder / "erased").unlink()
    assert world.brought(named).done == ["clean it: deploy.erase_devices"]
    assert len(list((world.folder / "erased").iterdir())) == 1


def test_a_rebuild_that_was_never_asked_for_is_no_system(world: World) -> None:
    """A run is killed after it has noted what it will write, and before it asks for it."""
    (node,) = [one for one in world.session.nodes.values() if one["name"] == "gpu-1"]
    node["extra"]["ironspan_deployed"]["before"] = node["provision_updated_at"]
    outcome = world.brought(wanted())
    assert outcome.left and outcome.left.notes == (
        "gpu-1 is no host of the inventory: ironspan has written no operating system to it; redeploy it",
    )
