# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``private_files``: secrets that other programs write on this host are open to nobody else.

The kubelet and kubeadm make their keys themselves, renew them, and give them new names. So what is compared
is owner and mode of whatever matches; none of it is read, and what is not there is not missed.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Spec,
    State,
)


class PrivateFilesKind:
    """Takes away the permissions that ``mode`` does not have, and sets the owner; stricter modes stay."""

    name = "private_files"
    stays = "what was open to others stays closed"
    fields: t.Mapping[str, Field] = {
        "paths": Field((list,), required=True),
        **accounts.ownership_fields("0600"),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Only the last part of a path may be a pattern."""
        return accounts.mode_mistakes(spec) + [
            f"paths: {path!r} must be absolute, with wildcards in its last part only"
            for path in spec["paths"]
            if not isinstance(path, str) or path[:1] != "/" or "*" in os.path.dirname(path)
        ]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare owner and mode of each file that matches."""
        before: State = {}
        after: State = {}
        for path, status in self._found(spec, host):
            was, wanted = accounts.differences({**spec, "mode": _mode(spec, status)}, status, host)
            if wanted:
                before[path], after[path] = was, wanted
        return Change("update", before, after, "others could read a secret") if after else None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Set them; what was renewed meanwhile is looked at by the next run."""
        for path, status in self._found(spec, host):
            if path in change.after:
                host.backup(path)
                accounts.set_ownership(host.path(path), {**spec, "mode": _mode(spec, status)}, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the files come back by themselves."""

    def _found(self, spec: Spec, host: Host) -> t.Iterator[t.Tuple[str, os.stat_result]]:
        """Yield path and status of each file, once, and by the name that is no link.

        The kubelet's current certificate is a link to a dated file; both match, and the file is what counts.
        """
        seen = set()
        for pattern in spec["paths"]:
            folder, name = os.path.split(pattern)
            names = [name]
            if "*" in name:
                try:
                    names = sorted(fnmatch.filter(paths.names(host.path(folder)), name))
                except (FileNotFoundError, NotADirectoryError):
                    continue
            for name in names:
                path = f"{folder}/{name}"
                status = paths.status(host.path(path))
                if status is not None and stat.S_ISLNK(status.st_mode):
                    path, status = self._behind(path, host)
                if status is not None and stat.S_ISREG(status.st_mode) and path not in seen:
                    seen.add(path)
                    yield path, status

    def _behind(self, link: str, host: Host) -> t.Tuple[str, t.Optional[os.stat_result]]:
        try:
            path = paths.real(host.path(link))
        except FileNotFoundError:
            # It is being turned, or leads nowhere.
            return link, None
        below = len(host.path("/")) - 1
        return path[below:], paths.status(path)


def _mode(spec: Spec, status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode) & int(spec['mode'], 8):04o}"


KIND = PrivateFilesKind()
