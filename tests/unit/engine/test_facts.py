# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Facts, from files that stand for the kernel's and from this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import facts
from hypothesis import given
from hypothesis import strategies as st

ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
FILES = {
    "proc/sys/kernel/hostname": "rack-1\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
    "proc/sys/kernel/osrelease": "6.12.48-amd64\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 13"\nID=debian\nVERSION_ID="13"\n',
    "proc/meminfo": "MemTotal:       24689764 kB\nMemFree:        1 kB\n",
    "proc/net/route": ROUTE
    + "host0\t00000000\tFE00620A\t0003\t0\t0\t1024\t00000000\t0\t0\t0\n"
    + "slow0\t00000000\tFE00620A\t0003\t0\t0\t2048\t00000000\t0\t0\t0\n"
    + "host0\t0000620A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
    "sys/class/net/host0/mtu": "1450\n",
    "proc/swaps": "Filename\tType\n/dev/sda2 partition 1 0 -2\n",
    "proc/uptime": "12.50 20.00\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "run/systemd/container": "systemd-nspawn\n",
}


class Host:
    """Only paths are asked of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, path: str) -> str:
        return str(self.root) + path

    def owned(self, path: str) -> bool:
        return False


def put(root: Path, files: dict[str, str]) -> Host:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Host(root)


def test_collect(tmp_path: Path) -> None:
    found = facts.collect(put(tmp_path, FILES))  # type: ignore[arg-type]
    assert found.pop("disk_free_bytes") > 0
    assert abs(found.pop("time_unix") - time.time()) < 300
    assert found.pop("cpus") >= 1
    assert found.pop("arch")
    assert found == {
        "hostname": "rack-1",
        "machine_id": "0123456789abcdef0123456789abcdef",
        "boot_id": "11111111-2222-3333-4444-555555555555",
        "kernel": "6.12.48-amd64",
        "os": {"id": "debian", "version": "13"},
        "python": ".".join(map(str, sys.version_info[:3])),
        "memory_bytes": 24689764 * 1024,
        "cgroup_version": 2,
        "default_mtu": 1450,
        "swap_on": True,
        "container": "systemd-nspawn",
        "reboots": [],
        "uptime_s": 12.5,
    }


def test_an_empty_root_gives_facts_of_the_same_shape(tmp_path: Path) -> None:
    full = facts.collect(put(tmp_path / "full", FILES))  # type: ignore[arg-type]
    (tmp_path / "bare").mkdir()
    empty = facts.collect(Host(tmp_path / "bare"))  # type: ignore[arg-type]
    assert {key: type(value) for key, value in empty.items()} == {
        key: type(value) for key, value in full.items()
    }
    assert (empty["default_mtu"], empty["swap_on"], empty["cgroup_version"]) == (0, False, 0)


def test_this_machine() -> None:
    found = facts.collect(Host(Path("/")))  # type: ignore[arg-type]
    assert found["memory_bytes"] > 1 << 28
    assert found["uptime_s"] > 0
    assert len(found["boot_id"]) == 36


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"sys/fs/cgroup/cgroup.controllers": ""}, 2),
        ({"sys/fs/cgroup/memory/tasks": ""}, 1),
        ({"sys/fs/cgroup/memory/tasks": "", "sys/fs/cgroup/unified/cgroup.controllers": ""}, 1),
        ({}, 0),
    ],
)
def test_cgroup_version(tmp_path: Path, files: dict[str, str], version: int) -> None:
    assert facts.cgroup_version(put(tmp_path, files)) == version  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID=ubuntu\nVERSION_ID='24.04'\n", {"id": "ubuntu", "version": "24.04"}),
        ("# comment\nID = x\n", {"id": "x", "version": ""}),
        ("", {"id": "", "version": ""}),
    ],
)
def test_parse_release(text: str, expected: dict[str, str]) -> None:
    assert facts.parse_release(text) == expected


@given(st.text())
def test_parsers_never_fail(text: str) -> None:
    assert set(facts.parse_release(text)) == {"id", "version"}
    assert facts.memory_bytes(text) >= 0
    assert isinstance(facts.default_interface(ROUTE + text), str)
