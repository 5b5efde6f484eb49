# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads a snapshot back: every part verified, and the whole against its manifest."""

from __future__ import annotations

import collections.abc
import hashlib

from ironspan.backup import crypto
from ironspan.backup.catalogue import Snapshot
from ironspan.backup.errors import ChainError
from ironspan.backup.store import Store


def read_snapshot(store: Store, keys: crypto.Keys, snapshot: Snapshot) -> collections.abc.Iterator[bytes]:
    """Yield the plain bytes of a snapshot as etcd delivered them.

    Only when this ends without an error are they all there and right; each part before it is what was
    written.

    Args:
        store: where it is.
        keys: unwrap its data key.
        snapshot: of the catalogue.

    Raises:
        ChainError: it is not what was written.
        KeyMissing: the key version is not there.
        ServiceError: it cannot be read.
    """
    manifest = snapshot.manifest
    name = snapshot.data.name
    key = keys.unwrap(manifest.key_version, manifest.wrapped_key)
    digest = hashlib.sha256()
    size = 0
    for part in crypto.decrypt(store.read(name), key, name):
        digest.update(part)
        size += len(part)
        yield part
    if size != manifest.size or digest.hexdigest() != manifest.sha256:
        raise ChainError(
            f"{name} is not what its manifest says: {size} bytes with the SHA-256 {digest.hexdigest()}.",
            "Use another snapshot, or the copy in another store.",
            altered=name,
        )
