# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every test of the lab has state and cache folders of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ironspan.lab.machine import Machine


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State below tmp_path/labs, caches below tmp_path/cache; returns the former."""
    monkeypatch.setenv("IRONSPAN_LAB_ROOT", str(tmp_path / "labs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "labs"


@pytest.fixture
def workstation() -> Machine:
    """A machine that lacks nothing."""
    return Machine(
        kernel="6.12.0",
        cpus=8,
        memory_bytes=32 * 2**30,
        cgroup_version=2,
        cgroup_mounts=("/sys/fs/cgroup",),
        systemd=True,
        root=True,
        capabilities=2**41 - 1,
        nofile_hard=1048576,
        overlay=True,
        features=("tun", "fuse", "kmsg", "btf"),
        missing_programs=(),
        bridge_netfilter=False,
        forward_drops=False,
        state_filesystem="ext4",
    )


@pytest.fixture
def test_machine(workstation: Machine) -> Machine:
    """A machine with cgroup v1, without systemd and without CAP_SYS_RESOURCE."""
    return replace(
        workstation,
        cgroup_version=1,
        cgroup_mounts=("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"),
        systemd=False,
        capabilities=(2**41 - 1) & ~(1 << 24),
        nofile_hard=20000,
    )
