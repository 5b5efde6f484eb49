# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The mirror's index: which files and images it holds, with which digest, made from what."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import pathlib

from ironspan.artifacts import cache
from ironspan.cli.outcome import CommandError

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file that the mirror holds."""

    name: str
    version: str
    arch: str
    path: str
    sha256: str
    size: int
    source: str
    licence: str
    built_from: str
    recipe: str

    @property
    def key(self) -> str:
        """Return NAME/VERSION/ARCHITECTURE."""
        return f"{self.name}/{self.version}/{self.arch}"


@dataclasses.dataclass(frozen=True)
class ImageEntry:
    """An image that the mirror holds; ``size`` is manifest, config and layers together, in bytes."""

    ref: str
    arch: str
    digest: str
    media_type: str
    blobs: tuple[str, ...]
    size: int
    source: str
    licence: str
    built_from: str
    recipe: str


Entry = FileEntry | ImageEntry


@dataclasses.dataclass(frozen=True)
class Index:
    """What an index file says."""

    artifacts: dict[str, FileEntry]
    images: dict[str, ImageEntry]


def load(path: pathlib.Path) -> Index:
    """Read an index; one that does not exist yet is empty.

    Raises:
        CommandError: the file is damaged or of another schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Index({}, {})
    remedy = f"Remove {path} and run `ironspan artifacts build`: what is still right is kept."
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise CommandError(f"{path} has schema {data['schema']!r}, this ironspan reads {SCHEMA}", remedy)
        files = {key: FileEntry(**value) for key, value in data["artifacts"].items()}
        images = {
            ref: ImageEntry(ref=ref, **{**value, "blobs": tuple(value["blobs"])})
            for ref, value in data["images"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} is damaged: {error}", remedy) from error
    return Index(files, images)


def render(index: Index) -> str:
    """Return the index as JSON text, sorted, with a newline at the end."""
    images = {ref: dataclasses.asdict(entry) for ref, entry in index.images.items()}
    for value in images.values():
        del value["ref"]
    data = {
        "schema": SCHEMA,
        "artifacts": {key: dataclasses.asdict(entry) for key, entry in index.artifacts.items()},
        "images": images,
    }
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def record(place: cache.Cache, entries: collections.abc.Iterable[Entry]) -> None:
    """Add entries to the mirror's index, whole or not at all; other runs may do the same at the same time.

    Args:
        place: the cache whose mirror gained something.
        entries: what it gained; an entry of the same key is replaced.
    """
    with place.locked("index") as scratch:
        index = load(place.index_path)
        for entry in entries:
            if isinstance(entry, FileEntry):
                index.artifacts[entry.key] = entry
            else:
                index.images[entry.ref] = entry
        cache.publish_text(render(index), place.index_path, scratch)
