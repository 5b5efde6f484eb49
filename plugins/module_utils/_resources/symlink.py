# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``symlink``: a symbolic link."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)


class SymlinkKind:
    """Makes or turns the link; a file in its place is replaced, a folder is refused."""

    name = "symlink"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "target": Field((str,), required=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """A link needs a target; whether the target exists is not this kind's business."""
        return [] if spec["target"] else ["target must not be empty"]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare the link's text with the target as written."""
        path = spec["path"]
        real = host.path(path)
        what = files.kind_of(files.status_of(real))
        after = {"state": "link", "target": spec["target"]}
        if what == "link":
            target = paths.link_target(real)
            if target == spec["target"]:
                return None
            return Change("update", {"target": target}, {"target": spec["target"]}, "points elsewhere")
        if what == "folder":
            raise ResourceError(
                f"{path} exists and is a folder", "Move it away on the host, or choose another path."
            )
        if what == "absent":
            accounts.need_folder(path, host)
            return Change("create", {"state": "absent"}, after, "does not exist")
        return Change("update", {"state": what}, after, f"is a {what}")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Make the new link beside, then rename it."""
        path = spec["path"]
        accounts.need_folder(path, host)
        host.backup(path)
        real = host.path(path)
        descriptor, temporary = files.temporary_beside(real)
        os.close(descriptor)
        try:
            paths.remove(temporary)
            paths.make_link(spec["target"], temporary)
            paths.rename(temporary, real)
        except BaseException:
            files.remove_if_there(temporary)
            raise
        files.sync_folder(os.path.dirname(real))

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""


KIND = SymlinkKind()
