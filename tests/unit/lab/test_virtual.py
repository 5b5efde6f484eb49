# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers: how QEMU is called, what their BMCs do with power, what Ironic is told."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import time
import types
import typing as t

import pytest

from ironspan.artifacts import cache, index, lock_file
from ironspan.artifacts.lock import native_arch
from ironspan.lab.errors import LabError
from ironspan.lab.virtual import cli, servers, world
from ironspan.lab.virtual.servers import Server

FOLDER = pathlib.Path("/nowhere")


def test_servers_are_emulated_and_check_what_they_start() -> None:
    command = Server(FOLDER, 1).command()
    assert command[command.index("-accel") + 1].startswith("tcg"), "/dev/kvm hangs guests of virtual machines"
    assert not [word for word in command if "kvm" in word]
    text = " ".join(command)
    assert "OVMF_CODE_4M.ms.fd" in text and "property=secure,value=on" in text and "smm=on" in text
    assert f"path={FOLDER}/log/server-1.console" in text


def test_no_two_servers_share_anything() -> None:
    found = [Server(FOLDER, number) for number in range(1, cli.MOST + 1)]
    for name in ("name", "uuid", "mac", "address", "tap", "console", "disk", "monitor"):
        assert len({getattr(server, name) for server in found}) == len(found), name
    assert all(len(name) <= 15 for name in [servers.BRIDGE, *(server.tap for server in found)])
    assert {server.address for server in found}.isdisjoint(
        f"{servers.PREFIX}.{end}" for end in range(100, 200)
    )


class Remembers:
    """What the emulator's servers in memory remember of a BMC."""

    def __init__(self, server: dict[str, t.Any]) -> None:
        self.server = server

    def _get(self, identity: str) -> dict[str, t.Any]:
        return self.server

    def get_boot_image(self, identity: str, device: str) -> tuple[str | None, bool, bool]:
        image = self.server.get("image")
        return (image, True, bool(image))


@pytest.fixture
def bmc(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """Return a BMC whose server is a process that waits, and that notes what it was started with."""
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/started\nexec sleep 600\n')
    program.chmod(0o755)
    for name in ("", ".error", ".emulator", ".emulator.main", ".emulator.resources"):
        monkeypatch.setitem(sys.modules, f"sushy_tools{name}", types.ModuleType(f"sushy_tools{name}"))
    packages = sys.modules
    packages["sushy_tools"].error = packages["sushy_tools.error"]  # type: ignore[attr-defined]
    packages["sushy_tools.error"].NotSupportedError = NotImplementedError  # type: ignore[attr-defined]
    packages["sushy_tools.emulator"].main = packages["sushy_tools.emulator.main"]  # type: ignore[attr-defined]
    systems = types.ModuleType("sushy_tools.emulator.resources.systems")
    systems.fakedriver = types.SimpleNamespace(FakeDriver=Remembers)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, systems.__name__, systems)
    monkeypatch.delitem(sys.modules, "ironspan.lab.virtual.emulator", raising=False)
    module = importlib.import_module("ironspan.lab.virtual.emulator")
    found = module.QemuServers({"uuid": "1", "command": [str(program)], "monitor": str(tmp_path / "qmp")})
    found.started = lambda: (tmp_path / "started").read_text().splitlines()
    yield found
    found.set_power_state("1", "ForceOff")
    monkeypatch.delitem(sys.modules, "ironspan.lab.virtual.emulator")


def waited(condition: t.Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_power_is_whether_the_server_runs(bmc: t.Any) -> None:
    assert bmc.get_power_state("1") == "Off"
    bmc.set_power_state("1", "ForceOff")
    bmc.set_power_state("1", "On")
    process = bmc._running["1"]
    bmc.set_power_state("1", "On")
    assert bmc._running["1"] is process, "what is on is not started twice"
    assert bmc.get_power_state("1") == "On"
    process.kill()
    process.wait()
    assert bmc.get_power_state("1") == "Off", "a server that switches itself off is off"


def test_a_restart_is_another_start_and_the_button_ends_nothing_by_force(bmc: t.Any) -> None:
    bmc.set_power_state("1", "On")
    first = bmc._running["1"]
    bmc.set_power_state("1", "GracefulShutdown")
    assert first.poll() is None, "nobody listens at the button, and the server runs on"
    bmc.set_power_state("1", "ForceRestart")
    assert first.poll() is not None
    assert bmc.get_power_state("1") == "On"
    with pytest.raises(NotImplementedError):
        bmc.set_power_state("1", "Nmi")


@pytest.mark.parametrize(
    ("device", "image", "expected"),
    [
        ("Cd", "/media.iso", "bootindex=0"),
        ("Hdd", "/media.iso", "bootindex=9"),
        ("Cd", None, ""),
    ],
)
def test_media_come_first_when_the_bmc_was_told_so(
    bmc: t.Any, device: str, image: str | None, expected: str
) -> None:
    bmc.server |= {"boot_device": device, "image": image}
    bmc.set_power_state("1", "On")
    assert waited(lambda: bool((pathlib.Path(bmc.server["monitor"]).parent / "started").exists()))
    assert waited(lambda: len(bmc.started()) == 1)
    assert bmc.started()[0].endswith(expected)
    assert ("media.iso" in bmc.started()[0]) is bool(image)


def test_images_that_nobody_built_are_named_with_the_command(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LabError, match="is not built: run `ironspan artifacts build --set server-images`"):
        world.images()
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
    found = world.images()
    assert found["server-disk"].sha256 == "ab" * 32
    sections = world._sections(found, tmp_path)
    assert str(sections["conductor"]["bootloader"]).endswith("/esp.img")
    assert str(sections["conductor"]["deploy_ramdisk"]).endswith("/ramdisk")
    assert sections["api"]["host_ip"] == servers.ADDRESS, (
        "it is reached from the bridge and from nowhere else"
    )


def test_a_machine_that_lacks_something_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path: None if "qemu" in program else program)
    monkeypatch.setattr(servers, "CODE", FOLDER)
    assert servers.missing() == ["ovmf", "qemu-system-x86"]


@pytest.mark.parametrize("count", [0, -1, cli.MOST + 1])
def test_a_number_of_servers_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(LabError, match=f"--count is 1 to {cli.MOST}, not {count}"):
        cli._up(argparse.Namespace(count=count))


def test_servers_there_already_are_not_made_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "folder", lambda: tmp_path)
    monkeypatch.setattr(cli, "detect", lambda: types.SimpleNamespace(root=True))
    with pytest.raises(LabError, match="remove them first: ironspan lab servers down"):
        cli._up(argparse.Namespace(count=1))
