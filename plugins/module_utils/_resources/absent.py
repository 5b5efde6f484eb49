# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``absent``: there is nothing at a path."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
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
        "/etc/systemd",
        "/etc/systemd/system",
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
        "/usr/local/bin",
        "/usr/local/lib",
        "/usr/local/libexec",
        "/usr/local/sbin",
        "/usr/sbin",
        "/var",
        "/var/lib",
        "/var/lib/ironspan",
        "/var/log",
    ]
)
"""Folders that no document may remove."""


class AbsentKind:
    """Removes a file, a link, an empty folder, or with ``recursive`` a whole tree.

    A folder that is a mount point itself stays, emptied. Mounts below it are an error; with ``unmount`` they
    are unmounted first, which a rollback cannot reverse. With ``keep_used`` a folder stays when it holds
    anything but what the document removes.
    """

    name = "absent"
    stays = "what it removed is not brought back"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "recursive": Field((bool,), default=False),
        "unmount": Field((bool,), default=False),
        "keep_used": Field((bool,), default=False),
    }

    def __init__(self) -> None:
        self.removed: t.Dict[str, bool] = {}
        """Path -> keep_used of every resource of this kind, noted while the document is checked."""

    def check(self, spec: Spec) -> t.List[str]:
        """Refuse to remove the system itself."""
        path = os.path.normpath(spec["path"])
        self.removed[path] = spec["keep_used"]
        return [f"{path} is part of the system and is never removed"] if path in NEVER else []

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look whether there is something, and whether it may go."""
        path = spec["path"].rstrip("/")
        real = host.path(path)
        what = files.kind_of(files.status_of(real))
        if what == "absent":
            return None
        if what == "folder":
            entries = len(paths.names(real))
            resolved = paths.real(real)
            mounted = _mounts(resolved)[:1] == [resolved]
            if spec["keep_used"]:
                if mounted or self._used(path, host):
                    return None
            elif entries and not spec["recursive"]:
                raise ResourceError(
                    f"{path} is a folder with {entries} entries",
                    "Empty it, or write recursive: true to remove all.",
                )
            if mounted:
                if not entries:
                    return None
                return Change("delete", {"entries": entries}, {"entries": 0}, "a mount point with content")
        return Change("delete", {"state": what}, {"state": "absent"}, "exists")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Move a tree out of the way, at once; remove anything else."""
        path = spec["path"].rstrip("/")
        real = host.path(path)
        what = files.kind_of(files.status_of(real))
        if what == "folder" and spec["recursive"]:
            # Looked at here, not in compare: what comes before (a unit that stops) may unmount something.
            resolved = paths.real(real)
            mounts = _mounts(resolved)
            itself = mounts[:1] == [resolved]
            for mounted in reversed(mounts[itself:]):
                if not spec["unmount"]:
                    raise ResourceError(f"{mounted} is a mount point", "Unmount it first.")
                host.run(["umount", "--", mounted])
            for victim in (
                sorted(os.path.join(path, name) for name in paths.names(real)) if itself else [path]
            ):
                host.set_aside(victim)
        elif what != "absent" and not (spec["keep_used"] and what == "folder" and paths.names(real)):
            host.backup(path)
            if what == "folder":
                paths.remove_folder(real)
            else:
                paths.remove(real)
            files.sync_folder(os.path.dirname(real))

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup, or the tree that was moved, holds all."""

    def _used(self, path: str, host: Host) -> bool:
        """Tell whether a folder holds anything that this document does not remove."""
        inner = [f"{path}/{name}" for name in paths.names(host.path(path))]
        return any(
            name not in self.removed or (self.removed[name] and self._used(name, host)) for name in inner
        )


def _mounts(resolved: str) -> t.List[str]:
    """Return the mount points at and below a folder, sorted, each once; the folder itself comes first.

    Args:
        resolved: its path without links.
    """
    try:
        lines = paths.read("/proc/self/mountinfo").decode("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return [resolved] if os.path.ismount(resolved) else []
    # The fifth field is the mount point; a space in it is written \040.
    points = {line.split(" ")[4].replace("\\040", " ") for line in lines}
    return sorted(point for point in points if point == resolved or point.startswith(resolved + "/"))


KIND = AbsentKind()
