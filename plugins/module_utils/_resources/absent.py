# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``absent``: there is nothing at a path."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import files
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)

NEVER = frozenset(
    [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/usr/sbin",
        "/var",
        "/var/lib",
        "/var/lib/ironspan",
        "/var/log",
    ]
)
"""Folders that no document may remove."""


class AbsentKind:
    """Removes a file, a link, an empty folder, or with ``recursive`` a whole tree."""

    name = "absent"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "recursive": Field((bool,), default=False),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Refuse to remove the system itself."""
        path = os.path.normpath(spec["path"])
        return [f"{path} is part of the system and is never removed"] if path in NEVER else []

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look whether there is something, and whether it may go."""
        path = spec["path"].rstrip("/")
        real = host.path(path)
        what = files.kind_of(files.status_of(real))
        if what == "absent":
            return None
        if what == "folder":
            entries = len(os.listdir(real))
            if entries and not spec["recursive"]:
                raise ResourceError(
                    f"{path} is a folder with {entries} entries",
                    "Empty it, or write recursive: true to remove all.",
                )
            mounted = _mount_below(real)
            if mounted:
                raise ResourceError(f"{mounted} is a mount point", "Unmount it first.")
        return Change("delete", {"state": what}, {"state": "absent"}, "exists")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Move a tree out of the way, at once; remove anything else."""
        path = spec["path"].rstrip("/")
        real = host.path(path)
        what = files.kind_of(files.status_of(real))
        if what == "folder" and spec["recursive"]:
            host.set_aside(path)
        elif what != "absent":
            host.backup(path)
            if what == "folder":
                os.rmdir(real)
            else:
                os.unlink(real)
            files.sync_folder(os.path.dirname(real))

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup, or the tree that was moved, holds all."""


def _mount_below(real: str) -> str:
    """Return a mount point at or below a folder, "" if there is none."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            # The fifth field is the mount point; a space in it is written \040.
            points = [line.split(" ")[4].replace("\\040", " ") for line in stream]
    except FileNotFoundError:
        return real if os.path.ismount(real) else ""
    resolved = os.path.realpath(real)
    return next((point for point in points if point == resolved or point.startswith(resolved + "/")), "")


KIND = AbsentKind()
