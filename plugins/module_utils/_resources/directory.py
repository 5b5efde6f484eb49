# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``directory``: a folder with its owner and mode; folders above it are made as needed."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)


class DirectoryKind:
    """Makes the folder; what is in it is left alone.

    Where it is declared no longer it is removed if nobody else has put something into it; ``with_contents``
    says that all in it belongs to it, and goes with it.
    """

    name = "directory"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "with_contents": Field((bool,), default=False),
        **accounts.ownership_fields("0755"),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Look at the mode's form."""
        return accounts.mode_mistakes(spec)

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare type, mode and owner. A link to a folder counts as the folder."""
        path = spec["path"]
        status = paths.status(host.path(path), follow=True)
        if status is None:
            if paths.status(host.path(path)) is not None:
                raise _in_the_way(path, "a dangling link")
            after = {
                "state": "directory",
                "mode": spec["mode"],
                "owner": spec["owner"],
                "group": spec["group"],
            }
            return Change("create", {"state": "absent"}, after, "does not exist")
        if not stat.S_ISDIR(status.st_mode):
            raise _in_the_way(path, "no folder")
        before, after = accounts.differences(spec, status, host)
        return Change("update", before, after, f"{' and '.join(after)} differ") if after else None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Make it, then set owner and mode."""
        path = spec["path"].rstrip("/")
        accounts.resolve(spec, host)
        host.backup(path)
        accounts.make_folders(os.path.dirname(path), host)
        try:
            # Nobody may look into it before its mode is set.
            paths.make_folder(host.path(path), 0o700)
        except FileExistsError:
            pass
        accounts.set_ownership(host.path(path), spec, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Remove the folder; unless ``with_contents`` only if nobody else has put something into it."""
        how = "recursive" if spec.get("with_contents") else "keep_used"
        return [{"kind": "absent", "path": path, how: True} for path in paths]


def _in_the_way(path: str, what: str) -> ResourceError:
    return ResourceError(f"{path} exists and is {what}", "Move it away on the host, or choose another path.")


KIND = DirectoryKind()
