# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Firmware of servers that run: Ironic's own redfish driver, BMCs of the lab, a simulated cluster."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.firmware_served import Served
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bare_metal_firmware
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_firmware import (
    BareMetalFirmware,
)

from ironspan.lab.bmc import emulator
from ironspan.lab.bmc.faults import Fault
from ironspan.lab.bmc.front import Front
from ironspan.lab.ironic import Ironic
from tests.support import firmware_lab
from tests.support.fake_api import NODES, FakeApi
from tests.support.simulated_nodes import NodeApi, Site, node_api
from tests.support.simulated_site import make_store

pytestmark = [pytest.mark.lab, pytest.mark.long]
ADDRESS = "127.79.0.4"
NAMES = ["w1", "w2"]


class Racks:
    """Servers that run.

    Args:
        folder: for files.
        fronts: their BMCs.
        lab: their Ironic.
        images: address of the image server.
    """

    def __init__(self, folder: Path, fronts: list[Front], lab: Ironic, images: str) -> None:
        self.folder, self.fronts, self.lab, self.images = folder, fronts, lab, images
        self.expected = folder / "racks.csv"

    @property
    def api(self) -> IronicApi:
        """Their Ironic."""
        return connected("lab", str(self.lab.clouds))

    def declare(self, bios: str, bmc: str = "1.02.3", names: list[str] = NAMES) -> dict[str, t.Any]:
        """Declare a baseline, and return what a site says of firmware."""
        rows = [f"{name},192.0.2.{n},a,{n},{bios},{bmc}" for n, name in enumerate(NAMES, 1) if name in names]
        head = "name,bmc_address,rack,position,firmware_bios,firmware_bmc"
        self.expected.write_text("\n".join([head, *rows]) + "\n")
        served = self.folder / "images"
        files = [firmware_lab.file_of(served, "bios", bios), firmware_lab.file_of(served, "bmc", bmc)]
        return {"site_bare_metal_firmware": files, "site_bare_metal_firmware_url": self.images}

    def bring(
        self, settings: dict[str, t.Any], api: IronicApi | None = None, served: Served | None = None
    ) -> Outcome:
        """Bring the servers to what was declared, without a plan."""
        wanted = bare_metal_firmware.declared(settings, {"ironspan_expected": str(self.expected)})
        kind = BareMetalFirmware(lambda: api or self.api, served=served)
        return bring(kind, wanted, Consent(), lambda text: None)


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    folder = tmp_path_factory.mktemp("firmware")
    (folder / "images").mkdir()
    with (
        emulator.running(folder / "bmc", len(NAMES)) as fronts,
        firmware_lab.serving(folder / "images") as images,
        firmware_lab.running(folder / "ironic", fronts, NAMES) as lab,
    ):
        yield Racks(folder, fronts, lab, images)


@pytest.fixture(autouse=True)
def healthy(racks: Racks) -> Iterator[None]:
    """Let BMCs do as they should; what they run stays, as Ironic knows it."""
    yield
    for front in racks.fronts:
        front.faults.clear()
        front.updates.lie = ""


def test_a_bios_is_updated_by_digest_a_refusal_is_named_and_the_next_run_finishes(racks: Racks) -> None:
    settings = racks.declare("2.0.0")
    refusing = racks.fronts[1]
    refusing.faults.add(Fault("500", path="SimpleUpdate", message="The image is not signed by its maker."))
    outcome = racks.bring(settings)
    assert [front.state.bios for front in racks.fronts] == ["2.0.0", "1.0.0"], outcome.problems
    (problem,) = outcome.problems
    assert problem.startswith("w2: a U2: its firmware was not updated, 'service failed'"), problem
    assert "The image is not signed by its maker." in problem
    digest = settings["site_bare_metal_firmware"][0]["sha256"]
    assert racks.fronts[0].updates.fetched == [f"{racks.images}/{digest}/bios.bin"]
    refusing.faults.clear()
    assert racks.bring(settings).problems == []
    assert refusing.state.bios == "2.0.0"
    assert {node.state for _, node in racks.api.nodes().values()} == {"active"}
    again = racks.bring(settings)
    assert (again.done, again.problems) == ([], [])


def test_a_bmc_is_updated_before_the_bios(racks: Racks) -> None:
    outcome = racks.bring(racks.declare("3.0.0", "1.03.0", ["w1"]))
    assert outcome.problems == []
    assert (racks.fronts[0].state.firmware, racks.fronts[0].state.bios) == ("1.03.0", "3.0.0")
    assert [task.component for task in racks.fronts[0].updates.tasks[-2:]] == ["bmc", "bios"]


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("fails", "Writing the bios failed: flash error 0x1f."),
        ("keeps", "the update ended well, and bios {} runs, 4.1.0 is declared"),
    ],
)
def test_what_the_task_says_is_said_and_an_old_version_is_held(racks: Racks, lie: t.Any, said: str) -> None:
    settings = racks.declare({"fails": "4.0.0", "keeps": "4.1.0"}[lie], names=["w1"])
    said = said.format(racks.fronts[0].state.bios)
    racks.fronts[0].updates.lie = lie
    (problem,) = racks.bring(settings).problems
    assert problem.startswith("w1: a U1: ") and said in problem, problem
    racks.fronts[0].updates.lie = ""
    assert racks.bring(settings).problems == []


def test_a_file_that_is_not_there_is_found_by_the_plan_and_told_by_the_bmc(racks: Racks) -> None:
    """By the plan where this controller reaches the server; else by the BMC, in its own words."""
    settings = racks.declare("5.0.0", names=["w1"])
    shutil.rmtree(racks.folder / "images" / settings["site_bare_metal_firmware"][0]["sha256"])
    asked = len(racks.fronts[0].updates.tasks)
    (problem,) = racks.bring(settings).problems
    assert "the file for bios 5.0.0 is not there" in problem and "answers 404; site.yml brings" in problem
    assert len(racks.fronts[0].updates.tasks) == asked, "nothing was asked of the BMC"
    (problem,) = racks.bring(settings, served=lambda url: "").problems
    assert "The image could not be transferred from" in problem, problem
    assert racks.bring(racks.declare("5.0.0", names=["w1"])).problems == []


class Killed(BaseException):
    """The run ends at once."""


def test_a_run_that_is_killed_in_the_middle_is_finished_by_the_next(racks: Racks) -> None:
    settings, updates = racks.declare("6.0.0", names=["w1"]), racks.fronts[0].updates
    updates.lie = "hangs"
    before = len(updates.tasks)

    def killed(*arguments: t.Any) -> t.NoReturn:
        raise Killed

    api = racks.api
    api._sleep = killed
    with pytest.raises(Killed):
        racks.bring(settings, api)
    until = time.monotonic() + 60
    while len(updates.tasks) == before and time.monotonic() < until:
        time.sleep(0.5)

    def go_on() -> None:
        updates.lie = ""
        updates.reset()

    threading.Timer(5, go_on).start()
    outcome = racks.bring(settings)
    assert outcome.problems == []
    assert len(updates.tasks) == before + 1
    assert racks.fronts[0].state.bios == "6.0.0"


class World(t.NamedTuple):
    """A site with two workers on these servers.

    Args:
        racks: its servers.
        site: its playbooks.
        cluster: its API.
    """

    racks: Racks
    site: Site
    cluster: NodeApi

    def declare(self, bios: str) -> None:
        path = self.site.folder / "hosts.yml"
        inventory = yaml.safe_load(path.read_text())
        inventory["all"]["vars"] |= self.racks.declare(bios)
        path.write_text(yaml.safe_dump(inventory, sort_keys=False))

    def run(self, *options: str, operation: str = "server_firmware") -> tuple[int, str]:
        """Run the operation about all servers; its output is one line."""
        self.site.choose(operation)
        status, output = self.site.finish("-e", f"ironspan_expected={self.racks.expected}", *options)
        return status, " ".join(output.split())

    def closed(self) -> list[str]:
        """Return the nodes that take no pods."""
        nodes = {name: self.cluster.objects[f"{NODES}/{name}"] for name in self.cluster.names(NODES)}
        return [name for name, node in nodes.items() if node.get("spec", {}).get("unschedulable")]


@pytest.fixture
def world(racks: Racks) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="isf-", dir="/tmp"))
    store = make_store(folder)
    with FakeApi() as free:
        port = free.port
    site = Site(folder / "site", folder, ADDRESS, port)
    site.patience_s = 900
    path = site.folder / "hosts.yml"
    inventory = yaml.safe_load(path.read_text())
    inventory["all"]["vars"] |= {
        "site_bare_metal_cloud": "lab", "site_bare_metal_clouds": str(racks.lab.clouds),
    }  # fmt: skip
    path.write_text(yaml.safe_dump(inventory, sort_keys=False))
    try:
        with node_api(store, site, ADDRESS, port) as cluster:
            status, output = site.finish()
            assert status == 0, output
            yield World(racks, site, cluster)
    finally:
        site.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_nodes_are_drained_updated_and_opened_and_one_that_fails_stays_closed(world: World) -> None:
    world.declare("7.0.0")
    front, refusing = world.racks.fronts
    before = [front.state.bios, refusing.state.bios]
    status, output = world.run("--check", "--diff")
    assert status == 0, output
    assert "close w1 for new pods" in output and f"bios {before[0]} -> 7.0.0" in output, output
    assert (world.closed(), [front.state.bios, refusing.state.bios]) == ([], before)

    refusing.faults.add(Fault("500", path="SimpleUpdate", message="The image is not signed by its maker."))
    status, output = world.run()
    assert status != 0
    assert "w2: a U2: its firmware was not updated" in output, output
    assert "The image is not signed by its maker." in output, output
    assert [front.state.bios, refusing.state.bios] == ["7.0.0", before[1]]
    assert world.closed() == ["w2"]

    refusing.faults.clear()
    status, output = world.run()
    assert status == 0, output
    assert "close w1" not in output
    assert (refusing.state.bios, world.closed()) == ("7.0.0", [])
    status, output = world.run()
    assert status == 0 and "close w" not in output, output
    assert [front.state.bios, refusing.state.bios] == ["7.0.0"] * 2


def test_one_plan_has_the_drain_and_the_update_and_nothing_else_is_done(world: World) -> None:
    world.declare("8.0.0")
    plan = world.site.folder / "firmware.plan.json"
    planning = ("-e", "ironspan_planned=server_firmware", "-e", f"ironspan_plan_file={plan}")
    status, output = world.run(*planning, operation="plan")
    assert status == 0, output
    assert world.racks.fronts[0].state.bios != "8.0.0"
    status, output = world.run("-e", f"ironspan_plan={plan}")
    assert status == 0, output
    assert [front.state.bios for front in world.racks.fronts] == ["8.0.0"] * 2
    assert world.closed() == []
