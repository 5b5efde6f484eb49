# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Small file helpers of the system kinds: read what may be absent, write in one step, know again."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host


def read_text(host: Host, path: str) -> t.Optional[str]:
    """Return a file's text, None when there is no such file, or the process ended that it tells about.

    Args:
        host: the host.
        path: absolute path as in the document.
    """
    try:
        return paths.text(host.path(path))
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None


def signature(host: Host, path: str) -> t.Optional[t.List[int]]:
    """Return what changes whenever a file is written: size, mtime and ctime (ns), inode; None if absent."""
    status = paths.status(host.path(path), follow=True)
    return None if status is None else files.signature(status)


def write_file(
    host: Host, path: str, data: bytes, mode: int = 0o644, owner: t.Optional[files.Ownership] = None
) -> None:
    """Replace a file in one step. Its folder is made if need be (0755).

    Args:
        host: the host.
        path: absolute path as in the document.
        data: the whole content.
        mode: permission bits.
        owner: user and group id; None keeps the process's own.
    """
    real = host.path(path)
    paths.make_folders(os.path.dirname(real))
    files.write_atomically(real, data, mode, owner)


def remove_file(host: Host, path: str) -> None:
    """Remove a file or link if it is there."""
    files.remove_if_there(host.path(path))
