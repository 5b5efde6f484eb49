# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Digests of a folder with all that is in it, so that a change of any file is seen."""

from __future__ import annotations

import hashlib
import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths


def listing(tree: str) -> str:
    """Return a digest of what changes whenever a file may have."""
    return _digest((name, status.st_mode, files.signature(status)) for name, _, status in _walk(tree))


def content(tree: str) -> str:
    """Return a digest of names, modes and contents."""
    return _digest(
        (name, status.st_mode, paths.link_target(path) if what == "link" else files.sha256_of(path))
        for name, path, status in _walk(tree)
        for what in [files.kind_of(status)]
        if what in ("file", "link")
    )


def _digest(entries: t.Iterable[t.Any]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(repr(entry).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _walk(tree: str) -> t.Iterator[t.Tuple[str, str, os.stat_result]]:
    """Yield name below the tree, path and status of each file and link, in order."""
    for folder, folders, names in os.walk(tree):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(set(folders) - set(links))
        for name in sorted([*names, *links]):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, tree), path, os.lstat(path)
