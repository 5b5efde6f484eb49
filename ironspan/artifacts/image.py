# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes container images without docker, and lays them out as the OCI pull API wants to see them.

An image of the mirror is a folder ``/v2/REGISTRY/REPOSITORY`` with ``manifests/TAG``, ``manifests/DIGEST``
and ``blobs/DIGEST``: a static file server can serve it (OCI distribution specification, "pull").
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import typing as t

from ironspan.artifacts import cache, pack
from ironspan.artifacts.lock import Image

RECIPE = 1
"""Raise it when this file makes another image from the same programs."""
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
"""Layers are not compressed: of what was measured (docs/artifacts.md), this costs a host the least."""
MANIFEST_FOLDERS = {MANIFEST: "manifests", DOCKER_MANIFEST: "manifests.docker"}
"""Media type -> folder: a static server tells the two kinds apart by where they lie (see mirror.py)."""
SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"
EPOCH = "1970-01-01T00:00:00Z"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class Layer:
    """A finished layer: its digest as ``sha256:HEX`` and its size in bytes."""

    path: pathlib.Path
    digest: str
    size: int


@dataclasses.dataclass(frozen=True)
class Laid:
    """An image that lies in the mirror; sizes in bytes."""

    digest: str
    media_type: str
    blobs: tuple[str, ...]
    size: int


def program_layer(
    programs: dict[str, pathlib.Path], target: pathlib.Path, sources: dict[str, pathlib.Path] | None = None
) -> Layer:
    """Write a layer with programs, and with files of modules' sources.

    Args:
        programs: path in the image -> program.
        target: the tar file to write.
        sources: path in the image -> file, or folder with all that is in it. Scripts become executable.
    """
    with target.open("wb") as raw:
        stream = pack.Digesting(raw)
        archive = pack.Archive(t.cast("t.IO[bytes]", stream))
        for member, source in sorted(programs.items()):
            archive.program(member, source)
        for member, source in sorted((sources or {}).items()):
            archive.tree(member, source)
        archive.close()
    return Layer(target, stream.digest, stream.size)


def existing_layer(path: pathlib.Path) -> Layer:
    """Describe a layer that is there already."""
    return Layer(path, cache.digest_of(path), path.stat().st_size)


def configuration(image: Image, layers: list[Layer], arch: str) -> bytes:
    """Return an image's configuration as JSON."""
    run: dict[str, t.Any] = {"Env": [SEARCH_PATH]}
    if image.entrypoint:
        run["Entrypoint"] = list(image.entrypoint)
    if image.command:
        run["Cmd"] = list(image.command)
    if image.user:
        run["User"] = image.user
    return _json(
        {
            "architecture": arch,
            "os": "linux",
            "created": EPOCH,
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": EPOCH, "created_by": "ironspan artifacts build"} for _ in layers],
        }
    )


def lay_out(image: Image, layers: list[Layer], arch: str, place: cache.Cache, scratch: pathlib.Path) -> Laid:
    """Put a made image into the mirror: blobs first, then the manifest by digest, last by tag.

    Args:
        image: the lock file's entry.
        layers: lowest first.
        arch: amd64 or arm64.
        place: the cache with the mirror.
        scratch: folder for unfinished files.
    """
    folder = place.below_mirror(image.mirror_folder)
    config = configuration(image, layers, arch)
    for layer in layers:
        cache.link_or_copy(layer.path, folder / "blobs" / layer.digest, scratch)
    put(config, folder / "blobs" / digest(config), scratch)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
        }
    )
    return publish_manifest(image, manifest, MANIFEST, place, scratch)


def publish_manifest(
    image: Image, manifest: bytes, media_type: str, place: cache.Cache, scratch: pathlib.Path
) -> Laid:
    """Make an image whose blobs lie in the mirror visible, by digest and by tag."""
    folder = place.below_mirror(image.mirror_folder)
    for kind, name in MANIFEST_FOLDERS.items():
        if kind == media_type:
            put(manifest, folder / name / digest(manifest), scratch)
            put(manifest, folder / name / image.tag, scratch)
    for kind, name in MANIFEST_FOLDERS.items():
        if kind != media_type:
            # The tag may have been of the other kind before.
            (folder / name / image.tag).unlink(missing_ok=True)
    blobs = references(manifest)
    size = len(manifest) + sum(amount for _, amount in blobs)
    return Laid(digest(manifest), media_type, tuple(name for name, _ in blobs), size)


def references(manifest: bytes) -> list[tuple[str, int]]:
    """Return digest and size of what a manifest names: the configuration, then the layers.

    Digests become names of files, so they are taken in their exact form only.

    Raises:
        ValueError: it is no image manifest.
    """
    try:
        data = json.loads(manifest)
        found = [(item["digest"], item["size"]) for item in (data["config"], *data["layers"])]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not an image manifest: {error}") from error
    for blob, size in found:
        if not (isinstance(blob, str) and _DIGEST.fullmatch(blob)) or type(size) is not int or size < 0:
            raise ValueError(f"not an image manifest: it names a blob {blob!r} of {size!r} bytes")
    return found


def digest(data: bytes) -> str:
    """Return the digest of bytes as ``sha256:HEX``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def put(data: bytes, target: pathlib.Path, scratch: pathlib.Path) -> None:
    """Write a small file whole or not at all."""
    temporary = scratch / "blob"
    temporary.write_bytes(data)
    cache.publish(temporary, target)


def _json(data: t.Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
