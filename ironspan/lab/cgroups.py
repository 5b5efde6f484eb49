# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The hosts' own cgroups, one in every hierarchy, for machines where systemd does not make them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ironspan.lab import processes
from ironspan.lab.errors import LabError

_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


def folders(hierarchies: tuple[str, ...], name: str) -> list[Path]:
    """Where the cgroup called `name` is in each hierarchy."""
    return [Path(place) / name for place in hierarchies]


def create(hierarchies: tuple[str, ...], name: str, version: int) -> list[Path]:
    """Make the cgroup in every hierarchy; one that is there is kept."""
    made = folders(hierarchies, name)
    if version == 2:
        # Hosts need the controllers; the top may refuse those it lacks, which the kubelet then reports.
        for controller in _CONTROLLERS:
            with contextlib.suppress(OSError):
                (made[0].parent / "cgroup.subtree_control").write_text(f"+{controller}")
    for folder in made:
        folder.mkdir(exist_ok=True)
        # A v1 cpuset takes no process before it has CPUs and memory nodes.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if version == 1 and (folder / setting).exists() and not (folder / setting).read_text().strip():
                (folder / setting).write_text((folder.parent / setting).read_text())
    return made


def members(folder: Path) -> list[int]:
    """Processes in the cgroup and in all below it."""
    found: set[int] = set()
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (Path(place) / "cgroup.procs").read_text().split())
    return sorted(found)


def hierarchies() -> list[Path]:
    """Every folder below which a lab's cgroups can be, whatever was mounted when the lab came up."""
    top = Path("/sys/fs/cgroup")
    return [top, *(entry for entry in top.iterdir() if entry.is_dir() and not entry.is_symlink())]


def kill(name: str) -> None:
    """Kill all processes in the cgroup called `name`, in whatever hierarchy they are."""
    for _ in range(5):
        alive = {pid for top in hierarchies() for pid in members(top / name)}
        if not alive:
            return
        processes.kill(alive)


def remove(name: str, timeout_s: float = 60.0) -> None:
    """Remove the cgroup called `name` with all below it from every hierarchy; its processes are killed."""
    kill(name)
    deadline = time.monotonic() + timeout_s
    for top in hierarchies():
        folder = top / name
        while folder.is_dir():
            for place, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    Path(place).rmdir()
            if folder.is_dir():
                if time.monotonic() > deadline:
                    raise LabError(f"cgroup {folder} cannot be removed: {members(folder)}", exit_code=1)
                time.sleep(0.02)
