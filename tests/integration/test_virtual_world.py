# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers as a rack: power through their BMCs, the leaf switch, and nothing left behind.

No system is started on them here: firmware finds an empty disk. test_virtual_servers.py starts one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _attest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint, Trust

from ironspan.lab import packed, processes
from ironspan.lab.bmc import client, emulator
from ironspan.lab.commands import attempt, run
from ironspan.lab.errors import LabError
from ironspan.lab.virtual import servers, settings, world
from ironspan.lab.virtual.rack import Rack
from ironspan.lab.virtual.world import World
from tests.support.software_tpm import swtpm

RACK = Rack("rack-t", "isw-metal", IPv4Network("192.168.78.0/24"), "isw-m", own=True)
KILLED = Rack("rack-k", "isk-metal", IPv4Network("192.168.79.0/24"), "isk-m", own=True)
"""Of runs that are killed: the other one is there all the time."""
COUNT = 2
IMAGES = {
    name: settings.Image("http://192.168.78.1:8087/none", "ab" * 32)
    for name in ("agent-kernel", "agent-ramdisk", "agent-esp", "server-disk")
}
SCRIPT = Path(__file__).with_name("servers_kill.py")
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
"""linux/if_tun.h"""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="virtual servers need root: a bridge"),
    pytest.mark.skipif(bool(servers.missing()), reason=f"apt-get install -y {' '.join(servers.missing())}"),
    # Its bridge has one name: two of these at once would be in each other's way.
    pytest.mark.xdist_group("virtual-world"),
]


def quiet(*_: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture(autouse=True, scope="module")
def images() -> Iterator[None]:
    for environment in ("ironic", emulator.ENVIRONMENT):
        if packed.program(environment) is None:
            pytest.skip(f"{environment} is not built: ironspan artifacts build --set bare-metal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "images", lambda mirror: IMAGES)
        yield


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("rack")
    try:
        yield world.up(folder, RACK, COUNT, quiet)
    finally:
        world.down(folder)
        assert traces(folder, RACK) == []


def traces(folder: Path, place: Rack) -> list[str]:
    """Return what servers in a folder have on the machine."""
    links = [link["ifname"] for link in json.loads(run(["ip", "-json", "link"]))]
    found = [link for link in links if link in place.links]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command, environment = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue
            marked = f"{processes.MARKER}={folder}".encode() in environment
            if marked or f"{folder}/".encode() in command:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def bmc_of(rack: World, number: int) -> Bmc:
    factory = json.loads(rack.factory.read_text())
    server = rack.servers[number - 1]
    entry = factory[server.serial]
    return Bmc(
        Endpoint(server.name, server.bmc_address, 443),
        Trust("", frozenset({entry["sha256"]})),
        Login(entry["username"], entry["password"]),
    )


def switch(rack: World, number: int, kind: str) -> None:
    """Ask a server's BMC for power."""
    action = f"/redfish/v1/Systems/{rack.servers[number - 1].uuid}/Actions/ComputerSystem.Reset"
    with bmc_of(rack, number) as bmc:
        bmc.post(action, {"ResetType": kind}, "switch")


def waited(condition: Callable[[], bool], patience_s: float = 240.0) -> bool:
    until = time.monotonic() + patience_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def process_of(rack: World, number: int) -> int | None:
    """Return the number of a server's process, found by its name and not by what the lab writes down."""
    identity = rack.servers[number - 1].uuid
    # Servers of other tests may have the same identity, and never the same folder.
    done = attempt(["pgrep", "-f", f"qemu-system.*{identity}.*{rack.folder}/"])
    return int(done.stdout.split()[0]) if done.stdout.strip() else None


def test_servers_are_off_and_each_bmc_is_its_own(rack: World) -> None:
    for number, server in enumerate(rack.servers, 1):
        assert process_of(rack, number) is None
        with bmc_of(rack, number) as bmc:
            assert bmc.identity().serial == server.serial


def test_power_by_the_bmc_is_power_and_outlives_the_bmcs(rack: World) -> None:
    switch(rack, 1, "On")
    first = process_of(rack, 1)
    assert first is not None and process_of(rack, 2) is None
    assert waited(lambda: rack.servers[0].console.exists())
    for name in (client.NAME, emulator.NAME):
        pid = processes.running(rack.bmcs, name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    again = world.up(rack.folder, RACK, COUNT, quiet)
    assert process_of(rack, 1) == first, "what died was started again, the server was left alone"
    switch(again, 1, "ForceOff")
    assert waited(lambda: process_of(rack, 1) is None)


def tpm_of(rack: World, number: int) -> int | None:
    """Return the number of the process that is a server's TPM."""
    done = attempt(["pgrep", "-f", f"swtpm.*dir={rack.servers[number - 1].tpm}"])
    return int(done.stdout.split()[0]) if done.stdout.strip() else None


def endorsement_key(rack: World, number: int) -> str:
    """Ask the TPM of a server that is off for its endorsement key."""
    with swtpm(rack.servers[number - 1].tpm) as tpm:
        return str(_attest.attest({"tcti": tpm.tcti, "endorsement": True})["ek"])


def greets(rack: World, number: int) -> bool:
    """Tell whether QEMU has made all of a server, and found its TPM."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
        monitor.settimeout(5)
        monitor.connect(str(rack.servers[number - 1].monitor))
        return b"QMP" in monitor.recv(1000)
    return False


def test_a_tpm_is_there_while_its_server_is_and_keeps_its_key(rack: World) -> None:
    keys = set()
    for kind in ("On", "PowerCycle"):
        switch(rack, 2, kind)
        assert waited(lambda: greets(rack, 2)) and tpm_of(rack, 2) is not None
        pid = process_of(rack, 2)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert waited(lambda: tpm_of(rack, 2) is None), "it outlived its server"
        keys.add(endorsement_key(rack, 2))
    assert len(keys) == 1, "another TPM after a power cycle"
    switch(rack, 2, "On")
    first = tpm_of(rack, 2)
    switch(rack, 2, "PowerCycle")
    assert first is not None and tpm_of(rack, 2) not in (None, first)
    switch(rack, 2, "ForceOff")
    assert tpm_of(rack, 2) is None, "left by a server that had not found it yet"


def test_a_second_up_changes_nothing(rack: World) -> None:
    before = sorted(traces(rack.folder, RACK))
    pids = [processes.running(rack.bmcs, client.NAME), processes.running(rack.folder / "ironic", "ironic")]
    world.up(rack.folder, RACK, COUNT, quiet)
    assert sorted(traces(rack.folder, RACK)) == before
    assert pids == [
        processes.running(rack.bmcs, client.NAME), processes.running(rack.folder / "ironic", "ironic"),
    ]  # fmt: skip


def test_a_bmc_fails_on_command(rack: World) -> None:
    serial = rack.servers[1].serial
    client.command(rack.bmcs, serial, power="claims-on")
    try:
        system = f"/redfish/v1/Systems/{rack.servers[1].uuid}"
        with bmc_of(rack, 2) as bmc:
            assert bmc.get(system)["PowerState"] == "On"
            client.command(rack.bmcs, serial, heal=True)
            assert bmc.get(system)["PowerState"] == "Off"
    finally:
        client.command(rack.bmcs, serial, heal=True)
    with pytest.raises(LabError, match="write one of LAB0001, LAB0002"):
        client.command(rack.bmcs, "LAB0009")


def test_the_leaf_says_who_it_is_on_the_ports_of_servers_that_are_on(rack: World) -> None:
    """A server's end of its port is opened as QEMU opens it."""
    with Path("/dev/net/tun").open("r+b", buffering=0) as port:
        flags = struct.pack("16sH", rack.servers[1].tap.encode(), _IFF_TAP | _IFF_NO_PI)
        fcntl.ioctl(port, _TUNSETIFF, flags)
        os.set_blocking(port.fileno(), False)
        heard = b""

        def listens() -> bool:
            nonlocal heard
            frame = port.read(2048)
            heard = frame if frame and frame[12:14] == b"\x88\xcc" else heard
            return bool(heard)

        assert waited(listens)
    assert heard[:6].hex() == "0180c200000e"
    assert b"Ethernet1/2" in heard and servers.LEAF.encode() in heard


def test_more_servers_come_and_go_while_others_run(rack: World) -> None:
    switch(rack, 1, "On")
    try:
        first = process_of(rack, 1)
        larger = world.up(rack.folder, RACK, COUNT + 1, quiet)
        switch(larger, 3, "On")
        assert process_of(larger, 3) is not None
        world.up(rack.folder, RACK, COUNT, quiet)
        assert process_of(larger, 3) is None and not larger.servers[2].disk.exists()
        assert process_of(rack, 1) == first
    finally:
        switch(rack, 1, "ForceOff")


def _killed(folder: Path, step: int) -> bool:
    """Bring servers up with a kill before the step-th change; False when it ended before that."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.servers_kill", str(folder), str(step)],
        check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.long
def test_down_after_up_was_killed_leaves_nothing(tmp_path: Path) -> None:
    step = 0
    while True:
        step += 3
        folder = tmp_path / str(step)
        killed = _killed(folder, step)
        world.down(folder)
        assert traces(folder, KILLED) == [], f"killed before change {step}"
        if not killed:
            break
    assert step > 20


def test_up_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    assert _killed(tmp_path, 14)
    try:
        found = world.up(tmp_path, KILLED, COUNT, quiet)
        with bmc_of(found, 2) as bmc:
            assert bmc.identity().serial == "LAB0002"
    finally:
        world.down(tmp_path)
    assert traces(tmp_path, KILLED) == []
