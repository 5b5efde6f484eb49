# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers: what their BMCs do with power, and with the TPM of a server."""

from __future__ import annotations

import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import typing as t

import pytest

from ironspan.lab import processes

IDENTITY = "5f6c2d1e-0f4b-4d0b-9d57-6f1b5c1d7a10"


class Remembers:
    """What the emulator's servers in memory remember of a BMC."""

    def __init__(self, server: dict[str, t.Any]) -> None:
        self.server = server

    def _get(self, identity: str) -> dict[str, t.Any]:
        return self.server

    def get_boot_image(self, identity: str, device: str) -> tuple[str | None, bool, bool]:
        image = self.server.get("image")
        return (image, True, bool(image))


def _tpm(folder: pathlib.Path) -> dict[str, t.Any]:
    """Return a TPM that stays when its server ends, and notes that it was started."""
    program, pidfile = folder / "tpm", folder / "tpm.pid"
    program.write_text(
        f"#!{sys.executable} -SE\nimport os, signal, time\n"
        f"with open('{folder}/started', 'a') as log:\n    print('tpm', file=log)\n"
        "if pid := os.fork():\n"
        f"    with open('{pidfile}', 'w') as file:\n        print(pid, file=file)\n"
        "else:\n    os.setsid()\n    time.sleep(600)\n"
    )
    program.chmod(0o755)
    return {"command": [str(program), "dir=tpm"], "pidfile": str(pidfile), "mark": "dir=tpm"}


@pytest.fixture
def bmc(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """Return a BMC whose server is a process that waits, and that notes what it was started with."""
    program = tmp_path / "server"
    program.write_text(
        f"#!{sys.executable} -SE\nimport sys, time\n"
        f"with open('{tmp_path}/started', 'a') as log:\n    print(*sys.argv[1:], file=log)\ntime.sleep(600)\n"
    )
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
    monkeypatch.delitem(sys.modules, "ironspan.lab.bmc.sushy_emulator", raising=False)
    module = importlib.import_module("ironspan.lab.bmc.sushy_emulator")
    server: dict[str, t.Any] = {"uuid": IDENTITY, "command": [str(program), IDENTITY]}
    server |= {"monitor": str(tmp_path / "qmp"), "pidfile": str(tmp_path / "pid")}
    server["tpm"] = _tpm(tmp_path)
    found = module.Servers(server)
    found.process = lambda: module._running(server)
    found.started = lambda: (tmp_path / "started").read_text().splitlines()
    found.tpm = lambda: module._process(server["tpm"]["pidfile"], server["tpm"]["mark"])
    yield found
    found.set_power_state("1", "ForceOff")
    monkeypatch.delitem(sys.modules, "ironspan.lab.bmc.sushy_emulator")


def waited(condition: t.Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_power_is_whether_the_server_runs(bmc: t.Any) -> None:
    assert bmc.get_power_state("1") == "Off"
    bmc.set_power_state("1", "ForceOff")
    bmc.set_power_state("1", "On")
    process = bmc.process()
    bmc.set_power_state("1", "On")
    assert bmc.process() == process, "what is on is not started twice"
    assert bmc.get_power_state("1") == "On"
    os.kill(process, signal.SIGKILL)
    assert waited(lambda: bmc.process() is None)
    assert bmc.get_power_state("1") == "Off", "a server that switches itself off is off"


def test_a_restart_is_another_start_and_the_button_ends_nothing_by_force(bmc: t.Any) -> None:
    bmc.set_power_state("1", "On")
    first = bmc.process()
    bmc.set_power_state("1", "GracefulShutdown")
    assert bmc.process() == first, "nobody listens at the button, and the server runs on"
    bmc.set_power_state("1", "ForceRestart")
    assert bmc.process() not in (None, first)
    assert bmc.get_power_state("1") == "On"
    with pytest.raises(NotImplementedError):
        bmc.set_power_state("1", "Nmi")


def test_a_server_goes_on_when_its_bmc_starts_again(bmc: t.Any) -> None:
    bmc.set_power_state("1", "On")
    first = bmc.process()
    again = type(bmc)(dict(bmc.server))
    assert again.get_power_state("1") == "On"
    again.set_power_state("1", "On")
    assert bmc.process() == first
    again.set_power_state("1", "ForceOff")
    assert bmc.process() is None


def test_another_process_of_the_same_number_is_not_the_server(bmc: t.Any) -> None:
    pathlib.Path(bmc.server["pidfile"]).write_text(f"{os.getpid()}\n")
    assert bmc.get_power_state("1") == "Off"
    bmc.set_power_state("1", "ForceOff")


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
    assert waited(lambda: len(bmc.started()) == 2)
    assert bmc.started()[1].endswith(expected)
    assert ("media.iso" in bmc.started()[1]) is bool(image)


def test_a_tpm_is_there_before_its_server_and_one_that_was_left_is_ended(bmc: t.Any) -> None:
    bmc.set_power_state("1", "On")
    assert waited(lambda: len(bmc.started()) == 2)
    assert bmc.started()[0] == "tpm", "the server was started before it"
    left = bmc.tpm()
    bmc.set_power_state("1", "PowerCycle")
    assert waited(lambda: len(bmc.started()) == 4)
    assert bmc.started()[2] == "tpm" and bmc.tpm() not in (None, left)
    assert waited(lambda: processes.start_time(left) is None), "two have the same state"
    bmc.set_power_state("1", "ForceOff")
    assert bmc.tpm() is None


def test_a_server_whose_tpm_does_not_start_stays_off(bmc: t.Any) -> None:
    bmc.server["tpm"]["command"] = ["false"]
    with pytest.raises(subprocess.CalledProcessError):
        bmc.set_power_state("1", "On")
    assert bmc.get_power_state("1") == "Off"
