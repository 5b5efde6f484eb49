# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers: how QEMU and their TPMs are called, what is theirs, what Ironic is told."""

from __future__ import annotations

import argparse
import ipaddress
import pathlib
import subprocess
import sys
import time
import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import lldp
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.taken import Taker

from ironspan.artifacts import cache, index, lock_file
from ironspan.artifacts.lock import native_arch
from ironspan.lab.bmc import process
from ironspan.lab.bmc.faults import Faults
from ironspan.lab.errors import LabError
from ironspan.lab.layout import HOSTS_PER_SITE, LABS_PER_MACHINE, Layout
from ironspan.lab.virtual import cli, expected, leaf, rack, servers, settings, world
from ironspan.lab.virtual.rack import Rack
from ironspan.lab.virtual.servers import Server

FOLDER = pathlib.Path("/nowhere")
PATHS = ("console", "disk", "variables", "tpm", "monitor", "pidfile")
LAYOUTS = [Layout("lab", index, 1, HOSTS_PER_SITE) for index in range(LABS_PER_MACHINE)]
RACKS = [rack.ALONE, *map(rack.of, LAYOUTS)]


def test_servers_are_emulated_and_check_what_they_start() -> None:
    command = Server(FOLDER, rack.ALONE, 1).command()
    assert command[command.index("-accel") + 1].startswith("tcg"), "/dev/kvm hangs guests of virtual machines"
    assert not [word for word in command if "kvm" in word]
    text = " ".join(command)
    assert "OVMF_CODE_4M.ms.fd" in text and "property=secure,value=on" in text and "smm=on" in text
    assert f"path={FOLDER}/log/server-1.console" in text
    assert "serial=LAB0001" in text, "firmware and BMC say the same serial number"


@pytest.mark.parametrize("place", RACKS, ids=lambda place: place.bridge)
def test_no_two_servers_of_a_rack_share_anything(place: Rack) -> None:
    found = [Server(FOLDER, place, number) for number in range(1, rack.MOST + 1)]
    for name in ("name", "uuid", "mac", "address", "bmc_address", "tap", "switch_port", *PATHS):
        assert len({getattr(server, name) for server in found}) == len(found), name
    assert all(len(name) <= 15 for name in place.links)
    addresses = [*(server.address for server in found), *(server.bmc_address for server in found)]
    first, last = (int(ipaddress.ip_address(end)) for end in place.agents.split(","))
    taken = {int(ipaddress.ip_address(address)) for address in addresses} | set(range(first, last + 1))
    assert len(taken) == len(addresses) + last - first + 1, "addresses of servers, BMCs and agents overlap"
    assert last - first + 1 >= len(found)
    assert all(ipaddress.ip_address(number) in place.network for number in taken)


def test_servers_of_a_lab_take_nothing_of_its_hosts_or_of_another_lab() -> None:
    for layout in LAYOUTS:
        place = rack.of(layout)
        servers_ = [Server(FOLDER, place, number) for number in range(1, rack.MOST + 1)]
        own = {server.address for server in servers_} | {server.bmc_address for server in servers_}
        site = layout.rack_site
        assert own.isdisjoint(str(host.address) for host in layout.hosts)
        assert own.isdisjoint(map(str, (site.controller, site.router, site.endpoint)))
    taps = [name for place in RACKS for name in place.links]
    assert len(set(taps)) == len(taps)


def test_the_file_of_expected_servers_can_be_read(tmp_path: pathlib.Path) -> None:
    machines = [Server(tmp_path, rack.ALONE, number) for number in (1, 2)]
    expected.path(tmp_path).write_text(expected.text(machines))
    read = expected_servers(str(expected.path(tmp_path)))
    assert [(one.name, one.bmc_address, one.serial, one.position) for one in read] == [
        (server.name, server.bmc_address, server.serial, server.number) for server in machines
    ]
    assert read[1].nics[0].port == "Ethernet1/2"
    size = machines[0].disk_gib * (1 << 30)
    assert abs(read[0].disks[0].size_gb * 10**9 / size - 1) < 0.02, "within what counts as equal"


def test_what_the_leaf_says_is_what_is_declared() -> None:
    said = leaf.frame("leaf-1", "Ethernet1/3", bytes.fromhex("525400770001"))
    assert said[:6].hex() == "0180c200000e" and said[12:14].hex() == "88cc"
    tlvs, at = [], 14
    while at < len(said):
        kind, length = said[at] >> 1, (said[at] & 1) << 8 | said[at + 1]
        tlvs.append([kind, said[at + 2 : at + 2 + length].hex()])
        at += 2 + length
    assert at == len(said) and tlvs[-1] == [0, ""]
    neighbour = lldp.of_raw(tlvs, "lldp", Taker())
    assert neighbour is not None and lldp.is_at(neighbour, servers.LEAF, "Ethernet1/3")


def test_a_server_has_a_tpm_that_ends_with_it_and_goes_with_it(tmp_path: pathlib.Path) -> None:
    server, other = (Server(tmp_path, rack.ALONE, number) for number in (1, 2))
    words, tpm = server.tpm_command(), server.system()["tpm"]
    assert {"--tpm2", "--terminate", "--daemon"} < set(words)
    assert tpm["command"] == words and tpm["mark"] in words
    assert f"file={tpm['pidfile']}" in words
    path = next(word for word in words if word.startswith("type=unixio")).split(",")[1]
    assert f"socket,id=tpm,{path}" in server.command() and "tpm-crb,tpmdev=tpm" in server.command()
    for one in (server, other):
        one.disk.touch()
        one.tpm.mkdir()
        (one.tpm / "tpm2-00.permall").touch()
    server.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server-2.raw", "server-2.tpm"]
    server.remove()


def test_a_process_is_a_servers_own_or_its_tpms(tmp_path: pathlib.Path) -> None:
    server, other = (Server(tmp_path, rack.ALONE, number) for number in (1, 2))
    mark = server.system()["tpm"]["mark"]
    until = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", "input()", mark], stdin=subprocess.PIPE) as process:
        while not server.has_process(process.pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert server.has_process(process.pid)
        assert not server.runs_as(process.pid) and not other.has_process(process.pid)
        process.communicate(b"\n")
    assert not server.has_process(process.pid)


def test_images_that_nobody_built_are_named_with_the_command(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LabError, match="is not built: run `ironspan artifacts build --set server-images`"):
        settings.images("http://192.0.2.1")
    arch = native_arch()
    place = cache.Cache()
    index.record(
        place,
        [
            index.FileEntry(
                file.name, file.version, arch, file.mirror_path(arch), "ab" * 32, 1, "debian", "", "", ""
            )
            for file in lock_file.load().files.values()
            if file.system
        ],
    )
    found = settings.images("http://192.0.2.1")
    assert found["server-disk"].sha256 == "ab" * 32
    assert found["server-disk"].url.startswith("http://192.0.2.1/")
    sections = settings.sections(rack.ALONE, found, tmp_path, 8088)
    assert str(sections["conductor"]["bootloader"]).endswith("/esp.img")
    assert str(sections["conductor"]["deploy_ramdisk"]).endswith("/ramdisk")
    assert sections["api"]["host_ip"] == rack.ALONE.controller, (
        "it is reached from the bridge and from nowhere else"
    )


def test_a_machine_that_lacks_something_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path: None if program[0] in "qs" else program)
    monkeypatch.setattr(servers, "CODE", FOLDER)
    assert servers.missing() == ["ovmf", "qemu-system-x86", "swtpm"]


@pytest.mark.parametrize("count", [0, -1, rack.MOST + 1])
def test_a_number_of_servers_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(LabError, match=f"{count} virtual servers: write a number from 1 to {rack.MOST}"):
        cli._up(argparse.Namespace(count=count))


def test_nothing_is_made_where_something_is_not_built(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(servers, "missing", list)
    with pytest.raises(
        LabError, match="Ironic is not built: run `ironspan artifacts build --set bare-metal`"
    ):
        world.up(tmp_path / "servers", rack.ALONE, 1, quiet)
    assert not (tmp_path / "servers").exists()


def quiet(what: str, state: str, detail: str) -> None:
    """Progress that nobody reads."""


class TestFaultsOnCommand:
    @pytest.fixture
    def fronts(self) -> dict[str, t.Any]:
        return {"LAB0001": types.SimpleNamespace(faults=Faults(), seen=[("GET", "/")])}

    def test_a_bmc_lies_fails_and_is_healed(self, fronts: dict[str, t.Any]) -> None:
        faults = fronts["LAB0001"].faults
        fault = {"kind": "500", "path": "Boot", "times": 1}
        answer = process.command(fronts, {"serial": "LAB0001", "power": "claims-on", "fault": fault})
        assert answer == {"requests": 1}
        assert faults.power == "claims-on"
        assert faults.of("GET", "/redfish/v1/Systems/1/BootOptions") is not None
        process.command(fronts, {"serial": "LAB0001", "heal": True})
        assert (faults.power, faults.of("GET", "/Boot")) == ("", None)

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"serial": "LAB0002"}, "LAB0001"),
            ({"serial": "LAB0001", "power": "sideways"}, "claims-off"),
            ({"serial": "LAB0001", "fault": {"sort": "x"}}, "sort"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, fronts: dict[str, t.Any], asked: dict[str, t.Any], said: str
    ) -> None:
        assert said in process.command(fronts, asked)["error"]
