# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How much memory a lab uses: its processes' proportional share, and the files it keeps in memory."""

from __future__ import annotations

import contextlib
import pathlib
import re

from ironspan.lab import Lab, state


def processes_of(lab: Lab) -> list[pathlib.Path]:
    """Return /proc folders of everything that belongs to a lab: its hosts' processes, mirror, names, link."""
    current = state.load(lab.name)
    assert current is not None
    marks = {host.cgroup for host in current.layout.hosts} | {host.machine for host in current.layout.hosts}
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            groups = set(re.split(r"[/\n]", (process / "cgroup").read_text()))
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            inside = any(mark in group for group in groups for mark in marks)
            if inside or str(lab.folder) in command:
                found.append(process)
    return found


def used_bytes(lab: Lab, tmpfs_bytes: int) -> int:
    """Return the memory a lab uses, in bytes.

    Args:
        lab: the lab.
        tmpfs_bytes: what its hosts keep in tmpfs.
    """
    total = tmpfs_bytes
    for process in processes_of(lab):
        with contextlib.suppress(OSError):
            match = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
            total += int(match[1]) * 1024 if match else 0
    return total
