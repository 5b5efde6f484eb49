# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether what the mirror holds is what the lock file asks for: an entry carries its recipe."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing as t

from ironspan.artifacts import cache, chart, debian, gobuild, image, index, pack
from ironspan.artifacts.lock import File, Image, Lock, expand

Source = t.Literal["upstream", "go", "wheels", "debian"]
OWN: tuple[Source, ...] = ("wheels", "debian")
"""Sources of what is made in one way, whatever is chosen for the rest."""


def own_source(item: File | Image) -> Source | None:
    """Return the one source of an item that has only one, None for others."""
    if isinstance(item, Image):
        return None
    return "wheels" if item.environment else "debian" if item.system else None


def from_upstream(item: File | Image, arch: str) -> str:
    """Return the recipe of a published item: its pinned digest; empty when there is none."""
    return item.digests.get(arch) or ""


def from_go(item: File | Image, lock: Lock, arch: str) -> str:
    """Return the recipe of an item made from Go modules; empty when the lock file has none for it."""
    parts: list[t.Any] = [
        {name: gobuild.recipe(lock.components[name]) for name in sorted(item.components())},
        arch,
    ]
    if isinstance(item, File):
        if item.chart:
            return hashlib.sha256(json.dumps([*parts, chart.recipe(item.chart)]).encode()).hexdigest()
        if not item.members:
            return ""
        members = {expand(member, arch): source for member, source in item.members.items()}
        parts += [pack.GZIP_LEVEL, item.pack, members, item.mirror_path(arch)]
    else:
        if not item.buildable:
            return ""
        base = debian.recipe(lock.bases[item.base]) if item.base else ""
        fields = dataclasses.asdict(item)
        parts += [
            image.RECIPE,
            base,
            [fields[key] for key in ("ref", "programs", "entrypoint", "command", "user")],
        ]
        # Only where there are some: the recipes of all other images stay as they were.
        parts += [item.sources] if item.sources else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def recipe(item: File | Image, source: Source, lock: Lock, arch: str) -> str:
    """Return the recipe of an item by one source; empty when that source cannot provide it."""
    if source == "wheels":
        environment = lock.environments.get(item.environment) if isinstance(item, File) else None
        return environment.recipe(arch) if environment else ""
    if source == "debian":
        name, _, member = item.system.partition("/") if isinstance(item, File) else ("", "", "")
        return f"{lock.systems[name].recipe(arch)}/{member}" if name in lock.systems else ""
    return from_upstream(item, arch) if source == "upstream" else from_go(item, lock, arch)


def entry_of(item: File | Image, held: index.Index, arch: str) -> index.Entry | None:
    """Return what the index says about an item, None when the mirror does not hold it."""
    if isinstance(item, File):
        return held.artifacts.get(f"{item.key}/{arch}")
    found = held.images.get(item.ref)
    return found if found is not None and found.arch == arch else None


def is_current(
    item: File | Image, entry: index.Entry, sources: tuple[Source, ...], lock: Lock, arch: str
) -> bool:
    """Say whether an entry was made by the recipe that the lock file has now, from a source allowed."""
    for source in sources:
        wanted = recipe(item, source, lock, arch)
        if entry.source == source and wanted and entry.recipe == wanted:
            return True
    return False


def damage(entry: index.Entry, place: cache.Cache) -> list[str]:
    """Read everything that an entry stands for and compare the digests.

    Returns:
        What is wrong, one sentence for each file; empty when all is right.
    """
    if isinstance(entry, index.FileEntry):
        return _check(place.below_mirror(entry.path), f"sha256:{entry.sha256}")
    repository, _, tag = entry.ref.rpartition(":")
    folder = place.mirror / "v2" / repository
    kind = image.MANIFEST_FOLDERS.get(entry.media_type)
    if kind is None:
        return [f"{entry.ref}: the index names an unknown media type {entry.media_type!r}"]
    problems = _check(folder / kind / tag, entry.digest) + _check(folder / kind / entry.digest, entry.digest)
    for blob in entry.blobs:
        problems += _check(folder / "blobs" / blob, blob)
    return problems


def _check(path: pathlib.Path, digest: str) -> list[str]:
    try:
        found = cache.digest_of(path, digest.partition(":")[0])
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    return [] if found == digest else [f"{path}: its digest is {found}, it must be {digest}"]
