# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Releases of gVisor for tests: the programs of the mirror, and an archive as gVisor publishes them."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tarfile
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import (
    ArtifactsIndexError,
    load_index,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import default_index_path

from ironspan.artifacts import lock

RELEASE, OLDER = "20260817.0", "20260701.0"


def program(name: str, version: str) -> pathlib.Path:
    """Return a file of the mirror; without it the test is skipped, or fails if IRONSPAN_REQUIRE_LAB is 1."""
    try:
        entry = load_index(default_index_path()).artifact(name, version)
        return (default_index_path().parent / entry["path"].lstrip("/")).resolve(strict=True)
    except (ArtifactsIndexError, OSError) as error:
        # Older releases are in the set `upgrade`, which not every mirror has.
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1" and version != OLDER:
            pytest.fail(str(error))
        pytest.skip(f"{error}; run `ironspan artifacts build --set upgrade`")


def shim_name() -> str:
    """Return the shim that starts sandboxes on this machine: see ``gvisor_shim_artifact``."""
    index = load_index(default_index_path())
    lab = "containerd-shim-runsc-v1-lab"
    try:
        index.artifact(lab, RELEASE)
    except ArtifactsIndexError:
        return "containerd-shim-runsc-v1"
    return lab


def pack(target: pathlib.Path, release: str = RELEASE, compression: t.Literal["bz2", ""] = "bz2") -> None:
    """Write a release's archive: runsc, its shim, and beside them ``gvisor-bin``, what runsc starts.

    The sandbox's own program (``gvisor_sentry``) takes the arguments of runsc; runsc itself stands in for it.

    Args:
        target: the file.
        release: its programs have to be on the mirror.
        compression: bz2 as published, or none where time matters.
    """
    runsc = program("runsc", release)
    members = {
        "runsc": runsc,
        "containerd-shim-runsc-v1": program(shim_name(), release),
        "gvisor-bin/gvisor_sentry": runsc,
    }
    options: dict[str, t.Any] = {"compresslevel": 1} if compression else {}
    with tarfile.open(target, f"w:{compression}", **options) as archive:  # type: ignore[call-overload]
        for name, source in members.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = source.stat().st_size, 0o755
            with source.open("rb") as stream:
                archive.addfile(info, stream)


def index_with(archive: pathlib.Path, path: str, target: pathlib.Path, release: str = RELEASE) -> None:
    """Write an index that has an archive besides what the mirror has.

    Args:
        archive: the file.
        path: where it is on the mirror.
        target: the index to write.
        release: what it is an archive of.
    """
    content = json.loads(default_index_path().read_text())
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    entry = {"path": path, "sha256": digest, "size": archive.stat().st_size}
    content["artifacts"][f"gvisor/{release}/{lock.native_arch()}"] = entry
    target.write_text(json.dumps(content))
