# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Looking at mounts and removing folders without ever reaching into one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ironspan.lab.commands import attempt, run
from ironspan.lab.errors import LabError


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    path: str
    filesystem: str
    options: frozenset[str]


def parse(mountinfo: str) -> list[Mount]:
    """Read the text of a mountinfo file (format: proc(5)), in mount order."""
    found = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if not separator or len(left) < 6 or len(right) < 3:
            continue
        path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), left[4])
        found.append(Mount(path, right[0], frozenset(left[5].split(",")) | frozenset(right[2].split(","))))
    return found


def current() -> list[Mount]:
    """The mounts this process sees."""
    return parse(Path("/proc/self/mountinfo").read_text())


def is_mounted(path: Path) -> bool:
    """Whether something is mounted on exactly `path`."""
    return any(mount.path == str(path) for mount in current())


def filesystem_of(path: Path) -> str:
    """Type of the file system that `path` is, or would be made, on."""
    holding, kind = "", ""
    for mount in current():
        top = mount.path.rstrip("/")
        if (str(path) == top or str(path).startswith(f"{top}/")) and len(top) >= len(holding):
            holding, kind = top, mount.filesystem
    return kind


def unmount_below(path: Path) -> None:
    """Unmount everything on or below `path`, newest first; what is busy is detached."""
    below = [m.path for m in current() if m.path == str(path) or m.path.startswith(f"{path}/")]
    for place in reversed(below):
        if attempt(["umount", place]).returncode == 0 or not is_mounted(Path(place)):
            continue  # in the second case it has gone by itself, as with what it belonged to
        run(["umount", "--lazy", place])


def remove_tree(path: Path) -> None:
    """Delete `path` and all below it, after unmounting; never crosses into another file system."""
    if not path.exists() and not path.is_symlink():
        return
    unmount_below(path)
    if any(m.path == str(path) or m.path.startswith(f"{path}/") for m in current()):
        raise LabError(f"{path} still has mounts below it; nothing was deleted", exit_code=1)
    run(["rm", "-rf", "--one-file-system", "--", str(path)], timeout_s=300)
