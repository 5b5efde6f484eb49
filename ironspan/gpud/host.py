# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the host's own files say about its GPUs. The worker reads them: a file of a driver may hang too."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

ROOT = Path("/")
_VERSION = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_SERVICES = ("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex")
_CDI = ("run/cdi/nvidia.json", "var/run/cdi/nvidia.json", "etc/cdi/nvidia.json")
_LONGEST = 1 << 20
_NVIDIA, _DISPLAYS = "0x10de", ("0x0300", "0x0302")
_MOST_PORTS = 64


def read(root: Path = ROOT) -> dict[str, t.Any]:
    """Return what files say.

    Args:
        root: of the host's file system, for tests.

    Returns:
        ``module``: version of the kernel module that is loaded, empty without one; ``switches``: number of
        NVSwitches; ``services``: which of NVIDIA's services run; ``cdi``: driver and device nodes of the CDI
        description, None without one; ``missing``: device nodes of that description that are not there;
        ``ports``: of RDMA adapters, by ADAPTER/PORT; ``peermem``: whether nvidia_peermem is loaded;
        ``iommu``: types of the IOMMU groups that have GPUs, none where it is off, None where there are no
        GPUs; ``direct``: whether the kernel was told to keep PCIe's access control from redirecting.
    """
    cdi = _cdi(root)
    return {
        "module": _module(root),
        "switches": _count(root / "proc/driver/nvidia-nvswitch/devices"),
        "services": [name for name in _SERVICES if _runs(root, name)],
        "cdi": cdi,
        "missing": [path for path in (cdi or {}).get("nodes", []) if not (root / path.lstrip("/")).exists()],
        "ports": _ports(root),
        "peermem": (root / "sys/module/nvidia_peermem").is_dir(),
        "iommu": _iommu(root),
        "direct": "disable_acs_redir=" in _text(root / "proc/cmdline"),
    }


def _ports(root: Path) -> dict[str, dict[str, t.Any]]:
    """Return the ports of RDMA adapters, as Documentation/ABI/stable/sysfs-class-infiniband has them."""
    found = {}
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        # "4: ACTIVE", "400 Gb/sec (4X NDR)"
        state = _text(port / "state").strip().partition(": ")[2]
        rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", _text(port / "rate"))
        downed = _text(port / "counters/link_downed").strip()
        found[f"{port.parent.parent.name}/{port.name}"] = {
            "up": state == "ACTIVE",
            "state": state[:20] or "no state",
            "gbps": float(rate[1]) if rate else 0.0,
            "downed": int(downed) if downed.isdigit() else 0,
        }
        if len(found) >= _MOST_PORTS:
            break
    return found


def _iommu(root: Path) -> list[str] | None:
    """Return the types of the IOMMU groups of NVIDIA's devices; ``identity`` is passed through."""
    gpus = [
        device
        for device in sorted((root / "sys/bus/pci/devices").glob("*"))
        if _text(device / "vendor").strip() == _NVIDIA and _text(device / "class").startswith(_DISPLAYS)
    ]
    if not gpus:
        return None
    groups = [device / "iommu_group" for device in gpus]
    return sorted({_text(group / "type").strip() or "unknown" for group in groups if group.exists()})


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return ""


def _module(root: Path) -> str:
    found = _VERSION.search(_text(root / "proc/driver/nvidia/version"))
    return found[1] if found else ""


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


def _runs(root: Path, name: str) -> bool:
    """Say whether a service has processes: its control group is there as long as it has one."""
    return (root / "sys/fs/cgroup/system.slice" / f"{name}.service").is_dir()


def _cdi(root: Path) -> dict[str, t.Any] | None:
    for name in _CDI:
        text = _text(root / name)
        if not text:
            continue
        try:
            described = json.loads(text)
            edits = [described.get("containerEdits") or {}]
            edits += [device.get("containerEdits") or {} for device in described.get("devices") or []]
            nodes = [node["path"] for edit in edits for node in edit.get("deviceNodes") or []]
            mounts = [mount.get("hostPath", "") for edit in edits for mount in edit.get("mounts") or []]
            versions = {
                found[1] for path in mounts if (found := re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", path))
            }
            return {"nodes": sorted(set(nodes)), "drivers": sorted(versions)}
        except (ValueError, AttributeError, TypeError, KeyError):
            return {"nodes": [], "drivers": ["unreadable"]}
    return None
