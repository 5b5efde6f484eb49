# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``nvlink_fabric``: the host looks for switches, and its units follow what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import nvlink_fabric, systemd_unit
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.nvlink_fabric import KIND

from .fake_host import FakeHost, converge, filled
from .test_systemd_unit import ACTIVE, SYSTEMCTL

UNIT, DRIVER = "nvidia-fabricmanager.service", "580.159.03"
OFF = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled"}
ON = {**ACTIVE, "SubState": "exited"}
# Address -> vendor, class, vital product data: an H100 and its bridges, an adapter with and without switches.
GPU = {"0000:1b:00.0": ("0x10de", "0x030200", b"")}
SWITCH = {"0000:07:00.0": ("0x10de", "0x068000", b"")}
OTHER_BRIDGE = {"0000:00:01.0": ("0x8086", "0x060400", b"")}
ADAPTER = {"0000:05:00.0": ("0x15b3", "0x020700", b"\x82\x10\x00ConnectX-7\x90")}
MANAGES = {"0000:05:00.1": ("0x15b3", "0x020700", b"\x82\x10\x00ConnectX-7\x90V1SW_MNG")}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    monkeypatch.setattr(systemd_unit, "KIND", systemd_unit.SystemdUnitKind())
    monkeypatch.setattr(systemd_unit, "SETTLE_SECONDS", 0)
    host = FakeHost(tmp_path)
    host.python_program("systemctl", SYSTEMCTL)
    host.program("journalctl")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    host.put(
        nvlink_fabric.DRIVER, f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release\n"
    )
    host.put("/units.json", json.dumps({UNIT: OFF}))
    return host


def devices(host: FakeHost, *found: dict[str, tuple[str, str, bytes]]) -> None:
    for address, (vendor, kind, data) in (item for each in found for item in each.items()):
        folder = f"{nvlink_fabric.DEVICES}/{address}"
        host.put(f"{folder}/vendor", f"{vendor}\n")
        host.put(f"{folder}/class", f"{kind}\n")
        Path(host.path(f"{folder}/vpd")).write_bytes(data)


def spec(switches: str = "nvswitch", driver: str = DRIVER) -> dict[str, Any]:
    wanted = filled(KIND, id="nvidia_fabric/units", switches=switches, units=[UNIT], driver=driver)
    assert KIND.check(wanted) == []
    return wanted


def unit(host: FakeHost) -> tuple[str, str]:
    found = json.loads(host.text("/units.json"))[UNIT]
    return found["ActiveState"], found["UnitFileState"]


@pytest.mark.parametrize(
    ("found", "sort", "runs"),
    [
        ((GPU, SWITCH), "nvswitch", True),
        ((GPU, OTHER_BRIDGE), "nvswitch", False),
        ((), "nvswitch", False),
        ((GPU, SWITCH), "nvlink5", False),
        ((GPU, ADAPTER), "nvlink5", False),
        ((GPU, ADAPTER, MANAGES), "nvlink5", True),
    ],
)
def test_units_run_where_there_are_switches(
    host: FakeHost, found: tuple[Any, ...], sort: str, runs: bool
) -> None:
    devices(host, *found)
    change = converge(KIND, spec(sort), host)
    assert bool(change) is runs
    assert unit(host) == (("active", "enabled") if runs else ("inactive", "disabled"))


def test_units_are_off_where_there_are_none(host: FakeHost) -> None:
    host.put("/units.json", json.dumps({UNIT: ON}))
    change = converge(KIND, spec(), host)
    assert change is not None
    assert change.reason == "the host has no switches"
    assert unit(host) == ("inactive", "disabled")
    KIND.undo(spec(), change, host)
    assert unit(host)[1] == "enabled"


def test_another_driver_is_waited_for(host: FakeHost) -> None:
    devices(host, SWITCH)
    converge(KIND, spec(driver="580.159.04"), host)
    assert unit(host) == ("inactive", "enabled")


def test_what_failed_is_taken_back(host: FakeHost) -> None:
    devices(host, SWITCH)
    change = converge(KIND, spec(), host)
    assert change is not None
    KIND.undo(spec(), change, host)
    assert unit(host) == ("inactive", "disabled")


def test_off_again_it_is_stopped() -> None:
    (removed,) = KIND.removal(spec(), ())
    assert (removed["name"], removed["enabled"], removed["state"]) == (UNIT, False, "stopped")
