# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the mirror's index: which path and digest a document may name."""

from __future__ import annotations

import json
import pathlib
import typing as t

SCHEMA = 1


class FileReference(t.TypedDict):
    """What a document says about a file of the mirror; ``path`` begins with a slash, ``size`` is in bytes."""

    path: str
    sha256: str
    size: int


class ImageReference(t.TypedDict):
    """What a document says about an image of the mirror; ``digest`` is that of its manifest."""

    ref: str
    digest: str
    size: int


class ArtifactsIndexError(Exception):
    """The index is missing, damaged, or lacks what is asked for; the message says which command helps."""


class ArtifactsIndex:
    """The files and images that a mirror holds.

    Args:
        path: where the index came from, for messages.
        artifacts: NAME/VERSION/ARCHITECTURE -> entry.
        images: reference -> entry.
    """

    def __init__(
        self, path: pathlib.Path, artifacts: dict[str, dict[str, t.Any]], images: dict[str, dict[str, t.Any]]
    ) -> None:
        self.path = path
        self._artifacts = artifacts
        self._images = images

    def artifact(self, name: str, version: str, arch: str = "amd64") -> FileReference:
        """Return path below the mirror, SHA-256 (hex) and size of a file.

        Raises:
            ArtifactsIndexError: the mirror does not hold it; the message lists the versions it holds.
        """
        entry = self._artifacts.get(f"{name}/{version}/{arch}")
        if entry is None:
            held = sorted(key for key in self._artifacts if key.startswith(f"{name}/"))
            raise ArtifactsIndexError(
                f"the mirror ({self.path}) does not hold {name} {version} for {arch}; "
                + (f"it holds {', '.join(held)}; " if held else "")
                + f"run `ironspan artifacts build {name}/{version}`"
            )
        return {"path": str(entry["path"]), "sha256": str(entry["sha256"]), "size": int(entry["size"])}

    def image(self, ref: str) -> ImageReference:
        """Return reference, manifest digest (``sha256:HEX``) and size of an image.

        Raises:
            ArtifactsIndexError: the mirror does not hold it; the message lists the tags it holds.
        """
        entry = self._images.get(ref)
        if entry is None:
            repository = ref.rpartition(":")[0]
            held = sorted(key for key in self._images if key.rpartition(":")[0] == repository)
            raise ArtifactsIndexError(
                f"the mirror ({self.path}) does not hold the image {ref}; "
                + (f"it holds {', '.join(held)}; " if held else "")
                + f"run `ironspan artifacts build {ref}`"
            )
        return {"ref": ref, "digest": str(entry["digest"]), "size": int(entry["size"])}


def load_index(path: str | pathlib.Path) -> ArtifactsIndex:
    """Read a mirror's index.

    Args:
        path: the file ``index.json`` of the mirror; ``~`` is expanded.

    Returns:
        The index.

    Raises:
        ArtifactsIndexError: there is none, or it cannot be read.
    """
    place = pathlib.Path(path).expanduser()
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ArtifactsIndexError(
                f"{place} has schema {data['schema']!r}, this collection reads {SCHEMA}; "
                "run `ironspan artifacts build` of the same release"
            )
        return ArtifactsIndex(place, dict(data["artifacts"]), dict(data["images"]))
    except FileNotFoundError as error:
        raise ArtifactsIndexError(
            f"there is no mirror index at {place}; run `ironspan artifacts build`, "
            "or set site_artifacts_index to where it is"
        ) from error
    except OSError as error:
        raise ArtifactsIndexError(f"cannot read the mirror index {place}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactsIndexError(
            f"the mirror index {place} is damaged ({error}); remove it and run `ironspan artifacts build`"
        ) from error
