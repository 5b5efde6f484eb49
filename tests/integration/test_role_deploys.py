# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer ``ironic`` writes a server: its own TLS, login, media and images, a BMC that the site signed.

The BMC is emulated, the server pretended: a program reads the medium in the BMC and does what the agent on it
would. test_virtual_servers.py has a real agent, real UEFI and a disk, with an Ironic of the lab's.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ironspan.lab import Lab, packed, processes
from ironspan.lab.bmc import client, emulator, process
from ironspan.lab.errors import LabError
from ironspan.lab.virtual import expected, settings, variables
from ironspan.lab.virtual import rack as racks
from ironspan.lab.virtual import servers as machines
from tests.integration.conftest import lab_name
from tests.integration.test_ironic_role import HOST, PLAY, Rack
from tests.support import debian_packages, ramdisk
from tests.support.playbooks import ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]
TOOLS = ("genisoimage", "mtools", "dosfstools", "file", "zstd")
"""What the role installs where media are made."""


class Deployer(Rack):
    """A rack host with the site's own Ironic, and the BMC of a server beside it."""

    SETTINGS: t.ClassVar[dict[str, t.Any]] = {
        "ironic_http_tls": True,
        "ironic_database": "sqlite",
        "ironic_workers_count": 50,
    }

    @property
    def server(self) -> machines.Server:
        """Return the server."""
        return machines.Server(self.folder, racks.of(self.lab._require().layout), 1)

    @property
    def bmcs(self) -> pathlib.Path:
        """Return the folder of its BMC."""
        return self.folder / "bmc"

    @property
    def files(self) -> str:
        """Return where the host serves images and media."""
        return f"https://{self.address(HOST)}:8088"

    def plug_in(self) -> None:
        """Give the server a BMC on the rack's network."""
        place = self.server.rack
        racks.ensure(place, [1])
        pretended = {key: self.server.system()[key] for key in ("uuid", "name", "power_state", "nics")}
        client.ensure(self.bmcs, [{**pretended, "external_notifier": False}], [self.server.bmc()])
        expected.path(self.folder).write_text(expected.text([self.server]))

    def tell(self) -> None:
        """Say of the server what any lab says, but for the Ironic and its images."""
        said = variables.site(self.lab._require().layout, self.lab.folder)
        self.image = settings.images(self.server.rack.mirror)["server-disk"]
        del said["site_bare_metal_node"]["driver_info"]["redfish_verify_ca"]
        for name in ("site_bare_metal_cloud", "site_bare_metal_clouds", "site_bare_metal_inventory"):
            del said[name]
        source = f"{self.files}/images/{self.image.sha256}/disk.raw"
        said["site_bare_metal_image"] = {"source": source, "sha256": self.image.sha256, "format": "raw"}
        said["site_bare_metal_known_hosts"] = str(self.folder / "known_hosts")
        said["site_bare_metal_inspect"] = False
        hosts = self.inventory / "hosts.yml"
        site = yaml.safe_load(hosts.read_text())
        site["all"]["vars"].update(said)
        hosts.write_text(yaml.safe_dump(site))

    def played(self, name: str, **arguments: t.Any) -> Played:
        """Run a playbook about the server."""
        given = {"ironspan_expected": str(expected.path(self.folder))}
        given |= {f"ironspan_{key}": value for key, value in arguments.items()}
        done = play(name, self.inventory, self.folder, "-e", json.dumps(given))
        assert done.status == 0, done.output[-6000:]
        return done

    @contextlib.contextmanager
    def powered(self) -> Iterator[ramdisk.Server]:
        """Let the server start from what its BMC is given, for as long as a block lasts."""

        def start(medium: ramdisk.Medium) -> ramdisk.Ramdisk:
            address = str(self.server.rack.controller)
            return ramdisk.Ramdisk(medium, address, self.server.mac, self.folder)

        port = json.loads(process.configuration(self.bmcs).read_text())["emulator_port"]
        running = ramdisk.Server(f"https://127.0.0.1:{port}", self.server.uuid, start, self.folder)
        running.start()
        try:
            yield running
        finally:
            running.over.set()
            running.join(60)


@pytest.fixture(scope="module")
def rack() -> Iterator[Deployer]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    try:
        settings.images("")
    except LabError as error:
        pytest.skip(str(error))
    if packed.program(emulator.ENVIRONMENT) is None or shutil.which("isoinfo") is None:
        pytest.skip("ironspan artifacts build --set bare-metal; apt-get install -y genisoimage")
    made = Deployer(Lab(lab_name("isirv")), pathlib.Path(tempfile.mkdtemp(prefix="isi-", dir="/tmp")))
    (made.folder / "play.yml").write_text(PLAY.format(root=ROOT))
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        debs = made.folder / "debs"
        debs.mkdir()
        debian_packages.bring(made.lab, HOST, TOOLS, debs)
        made.plug_in()
        made.tell()
        first = made.converge()
        assert first.status == 0, first.output[-6000:]
        made.answering()
        yield made
    finally:
        processes.end(made.bmcs)
        with contextlib.suppress(LabError):
            racks.remove(made.server.rack, [1])
        made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_a_server_gets_its_system_over_the_roles_own_tls(rack: Deployer) -> None:
    plain = f"{rack.files.replace('https', 'http')}/images/{rack.image.sha256}/disk.raw"
    assert rack.on(HOST, f"curl -s -o /dev/null -w '%{{http_code}}' {plain}") == "400"
    rack.played("bmc_setup", factory=str(process.factory_file(rack.bmcs)))
    # From now on Ironic checks the BMC against the site's authority.
    assert rack.converge().status == 0
    rack.answering()
    with rack.powered() as server:
        rack.played("bare_metal", allow_destructive=True)
    nodes = rack.api().nodes()
    assert {name: node.state for name, (_, node) in nodes.items()} == {rack.server.name: "active"}
    agent = server.agents[-1]
    assert agent.sha256 == rack.image.sha256
    assert agent.image.startswith(f"{rack.files}/"), "the image came from the role's own server"
    # What only the server may know came with its config drive, and fits what was recorded.
    known = (rack.folder / "known_hosts").read_text().split()
    assert known[1:2] == ["ssh-ed25519"] and known[2].encode() in agent.config_drive
    assert rack.server.address.encode() in agent.config_drive
    # A medium has the server's name in Ironic in its own, and is gone once it is not needed.
    uuid = nodes[rack.server.name][0]
    for medium in server.media:
        assert medium.startswith(f"{rack.files}/media/") and uuid in medium
        assert rack.on(HOST, f"curl -sk -o /dev/null -w '%{{http_code}}' {medium}") == "404"


def test_a_second_run_changes_nothing(rack: Deployer) -> None:
    before = (rack.folder / "known_hosts").read_text()
    again = rack.played("bare_metal", allow_destructive=True)
    assert again.changed == {}, again.output[-6000:]
    assert (rack.folder / "known_hosts").read_text() == before
