# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""RDMA ports, peer memory, IOMMU and access control: from the host's files to what is found."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ironspan.gpud import host
from ironspan.gpud.checks import paths
from ironspan.gpud.checks.base import Context, Expected, Past

LIMITS = {check.name: check.limits for check in paths.CHECKS}


def write(root: Path, files: t.Mapping[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def port(
    name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", downed: str = "0"
) -> dict[str, str]:
    folder = f"sys/class/infiniband/{name}/ports/1"
    return {
        f"{folder}/state": f"{state}\n",
        f"{folder}/rate": f"{rate}\n",
        f"{folder}/counters/link_downed": downed,
    }


def gpu(root: Path, address: str, group: str | None, kind: str = "0x030200", vendor: str = "0x10de") -> None:
    write(
        root,
        {
            f"sys/bus/pci/devices/{address}/{name}": f"{text}\n"
            for name, text in (("vendor", vendor), ("class", kind))
        },
    )
    if group is not None:
        write(root, {f"sys/kernel/iommu_groups/{address}/type": f"{group}\n"})
        (root / f"sys/bus/pci/devices/{address}/iommu_group").symlink_to(
            root / f"sys/kernel/iommu_groups/{address}"
        )


class Looking:
    """Reads and checks again and again, with a clock of its own."""

    def __init__(self, root: Path, expected: Expected) -> None:
        self.root, self.expected, self.past, self.now = root, expected, Past(), 1000.0

    def look(self, seconds: float = 60) -> list[str]:
        """Return what is found after some seconds."""
        self.now += seconds
        context = Context([], {}, host.read(self.root), self.expected, past=self.past, now=self.now)
        found = [finding for check in paths.CHECKS for finding in check.find(context, LIMITS[check.name])]
        return [f"{finding.event}: {finding.detail}" for finding in found]


def test_what_is_not_declared_is_not_missed(tmp_path: Path) -> None:
    write(tmp_path, {**port("mlx5_0", "1: DOWN"), "proc/cmdline": "quiet"})
    gpu(tmp_path, "0000:17:00.0", "DMA")
    looking = Looking(tmp_path, Expected())
    assert [found for _ in range(10) for found in looking.look()] == []


def test_a_port_is_missed_when_it_stays_down(tmp_path: Path) -> None:
    write(tmp_path, {**port("mlx5_0"), **port("mlx5_1")})
    looking = Looking(tmp_path, Expected(ports=2))
    assert [found for _ in range(6) for found in looking.look()] == []
    write(tmp_path, port("mlx5_1", "2: INIT"))
    assert [found for _ in range(4) for found in looking.look()] == []
    found = [looking.look() for _ in range(2)][-1]
    assert found == ["nvml rdma_port_down: 1 of 2 ports are up: mlx5_1/1 (INIT, 400 Gbit/s)"]
    write(tmp_path, port("mlx5_1"))
    assert looking.look() == []


def test_a_port_that_was_never_up_and_an_adapter_that_is_gone(tmp_path: Path) -> None:
    write(tmp_path, port("mlx5_0"))
    looking = Looking(tmp_path, Expected(ports=2))
    found = [looking.look() for _ in range(6)]
    assert found[0] == [] and found[-1] == ["nvml rdma_port_down: 1 of 2 ports are up"]


def test_a_slow_port_counts_where_the_site_says_how_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, port("mlx5_0", rate="100 Gb/sec (1X HDR)"))
    monkeypatch.setitem(LIMITS, "H19", {**LIMITS["H19"], "gbps": 400})
    looking = Looking(tmp_path, Expected(ports=1))
    found = [looking.look() for _ in range(6)][-1]
    assert found == ["nvml rdma_port_down: 0 of 1 ports are up: mlx5_0/1 (ACTIVE, 100 Gbit/s)"]


def test_a_port_that_goes_up_and_down(tmp_path: Path) -> None:
    looking = Looking(tmp_path, Expected())
    for downed in (7, 8, 9):
        write(tmp_path, port("mlx5_0", downed=str(downed)))
        assert looking.look() == []
    write(tmp_path, port("mlx5_0", downed="10"))
    assert looking.look() == ["nvml rdma_port_flapping: mlx5_0/1 went down 3 times"]
    assert [looking.look() for _ in range(20)][-1] == []


def test_files_of_an_adapter_that_make_no_sense(tmp_path: Path) -> None:
    write(tmp_path, port("mlx5_0", "", "", "many"))
    write(tmp_path, {f"sys/class/infiniband/a{number}/ports/1/state": "4: ACTIVE" for number in range(100)})
    found = host.read(tmp_path)["ports"]
    assert len(found) == 64
    assert Looking(tmp_path, Expected()).look() == []


@pytest.mark.parametrize(
    ("module", "loaded", "wanted", "missed"),
    [
        ("580.1", False, True, True),
        ("580.1", True, True, False),
        ("", False, True, False),
        ("580.1", False, False, False),
    ],
)
def test_peer_memory(tmp_path: Path, module: str, loaded: bool, wanted: bool, missed: bool) -> None:
    if module:
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {module}  Release Build\n"
        write(tmp_path, {"proc/driver/nvidia/version": text})
    if loaded:
        (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    found = Looking(tmp_path, Expected(peermem=wanted)).look()
    assert found == (["nvml peermem_missing: nvidia_peermem is not loaded"] if missed else [])


@pytest.mark.parametrize(
    ("groups", "iommu", "says"),
    [
        (["identity", "identity"], "passthrough", ""),
        (["identity", "DMA-FQ"], "passthrough", "translates for GPUs (DMA-FQ)"),
        ([None, None], "passthrough", "the IOMMU is off"),
        ([None, None], "disabled", ""),
        (["identity"], "disabled", "the IOMMU is on"),
        ([], "passthrough", ""),
        (["DMA"], "", ""),
    ],
)
def test_the_iommu(tmp_path: Path, groups: list[str | None], iommu: str, says: str) -> None:
    for number, group in enumerate(groups):
        gpu(tmp_path, f"0000:{number:02x}:00.0", group)
    # Neither another maker's card nor a bridge of the same one counts.
    gpu(tmp_path, "0000:80:00.0", "DMA", vendor="0x15b3")
    gpu(tmp_path, "0000:81:00.0", "DMA", kind="0x068000")
    found = Looking(tmp_path, Expected(iommu=iommu)).look()
    assert says in " ".join(found) and bool(found) == bool(says)


@pytest.mark.parametrize(
    ("text", "missed"), [("quiet pci=disable_acs_redir=pci:0:0", False), ("quiet", True)]
)
def test_access_control(tmp_path: Path, text: str, missed: bool) -> None:
    write(tmp_path, {"proc/cmdline": text})
    assert bool(Looking(tmp_path, Expected(direct=True)).look()) is missed
    assert Looking(tmp_path, Expected()).look() == []
