# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Compares the mirror with the lock file, for lists and for verification."""

from __future__ import annotations

import collections.abc
import concurrent.futures
import dataclasses
import os
import typing as t

from ironspan.artifacts import cache, fill, index, recipes
from ironspan.artifacts.lock import File, Image, Lock

State = t.Literal["present", "missing", "outdated", "damaged", "not needed"]
BAD: tuple[State, ...] = ("missing", "outdated", "damaged")


@dataclasses.dataclass(frozen=True)
class Row:
    """One item: what the lock file asks for and what the mirror has; size in bytes."""

    name: str
    kind: t.Literal["file", "image"]
    state: State
    detail: str
    source: str
    size: int
    digest: str
    licence: str
    path: str
    built_from: str
    pinned: str
    """Digest of the published item for this architecture; empty when nobody pinned it."""


def look(lock: Lock, place: cache.Cache, arch: str, thorough: bool) -> list[Row]:
    """Return one row an item of the lock file.

    Args:
        lock: the lock file.
        place: the cache.
        arch: amd64 or arm64.
        thorough: read every byte and compare the digests; without it only the index is believed.
    """
    held = index.load(place.index_path)

    def one(item: File | Image) -> Row:
        return _row(item, recipes.entry_of(item, held, arch), lock, place, arch, thorough)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, lock.select(None)))


def problems(rows: collections.abc.Iterable[Row]) -> list[str]:
    """Return what is wrong, one sentence an item, each with what to do."""
    return [
        f"{row.name} is {row.state}{f' ({row.detail})' if row.detail else ''}; "
        f"run `ironspan artifacts build {row.name}`"
        for row in rows
        if row.state in BAD
    ]


def _row(
    item: File | Image, entry: index.Entry | None, lock: Lock, place: cache.Cache, arch: str, thorough: bool
) -> Row:
    capability = item.only_without_capability if isinstance(item, File) else ""
    state: State = "present"
    detail = ""
    if entry is None:
        state = "missing"
        if item.set_name:
            state, detail = "not needed", f"part of the set {item.set_name}"
        if capability and not fill.lacks_capability(capability):
            state, detail = "not needed", f"this machine has {capability}"
    elif not recipes.is_current(item, entry, ("upstream", "go", *recipes.OWN), lock, arch):
        state, detail = "outdated", "made by another recipe than the lock file has"
    elif thorough and (found := recipes.damage(entry, place)):
        state, detail = "damaged", "; ".join(found)
    digest = ""
    if isinstance(entry, index.FileEntry):
        digest = f"sha256:{entry.sha256}"
    elif isinstance(entry, index.ImageEntry):
        digest = entry.digest
    return Row(
        name=item.key,
        kind="file" if isinstance(item, File) else "image",
        state=state,
        detail=detail,
        source=entry.source if entry else "",
        size=entry.size if entry else 0,
        digest=digest,
        licence=item.licence,
        path=item.mirror_path(arch) if isinstance(item, File) else item.mirror_folder,
        built_from=entry.built_from if entry else "",
        pinned=item.digests.get(arch) or "",
    )
