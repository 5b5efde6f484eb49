# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads manifests that lie in the mirror, and nothing else than what its index says."""

from __future__ import annotations

import functools
import hashlib
import typing as t
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import ArtifactsIndexError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Object = dict[str, t.Any]


def read(mirror: Path, path: str, sha256: str) -> list[Object]:
    """Return the Kubernetes objects of a file of the mirror.

    Args:
        mirror: the mirror's folder on the controller.
        path: below the mirror, beginning with a slash.
        sha256: what the index says it is, hexadecimal.

    Raises:
        ArtifactsIndexError: it is not there, or is another file.
    """
    place = mirror / path.lstrip("/")
    try:
        data = place.read_bytes()
    except OSError as error:
        raise ArtifactsIndexError(
            f"cannot read {place}: {error.strerror}; copy the mirror to the controller, or run "
            "`ironspan artifacts build --set cilium`"
        ) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ArtifactsIndexError(
            f"{place} is not the file that the mirror's index names; run `ironspan artifacts verify`"
        )
    return list(_parsed(data))


@functools.lru_cache(maxsize=2)
def _parsed(data: bytes) -> tuple[Object, ...]:
    return tuple(item for item in yaml.load_all(data, Loader=_LOADER) if item)
