# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Brings a snapshot from the store to a file: verified, decrypted, and from where a broken run ended."""

from __future__ import annotations

import collections
import hashlib
import os
import time
import typing as t
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ironspan.backup import crypto
from ironspan.backup.errors import ChainError
from ironspan.backup.manifest import Manifest
from ironspan.backup.store import Store
from ironspan.program.errors import ServiceError

READERS = 4
"""One stream from Azure Blob storage brings about 60 MB/s; four fill most links."""
PIECE_PARTS = 3
"""Their bytes and tags fit into one range request (azure.transfer.PIECE)."""
ATTEMPTS = 6
_PART = crypto.PART_BYTES + crypto.TAG_BYTES


def fetch(
    store: Store,
    keys: crypto.Keys,
    name: str,
    manifest: Manifest,
    path: Path,
    progress: Callable[[int], None] = lambda size: None,
) -> None:
    """Bring the plain file of a snapshot to ``path``.

    Parts are verified before they are written, READERS of PIECE_PARTS parts at a time. What an earlier,
    broken call left in ``path`` is kept as far as whole parts go, and the SHA-256 over all has the last word.

    Args:
        store: where it is.
        keys: unwrap its data key.
        name: of the object with its data.
        manifest: what it has to be.
        path: the file.
        progress: is told the bytes that are there.

    Raises:
        KeyMissing: the key version is not to be had.
        ChainError: it is not what was written.
        ServiceError: the store fails again and again.
    """
    data_key = keys.unwrap(manifest.key_version, manifest.wrapped_key)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(handle, "r+b") as file:
        digest = hashlib.sha256()
        have = _have(file, digest, manifest)
        file.truncate(have * crypto.PART_BYTES)
        for piece in _pieces(store, name, data_key, have, manifest.parts):
            digest.update(piece)
            file.write(piece)
            progress(file.tell())
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    if (size, digest.hexdigest()) == (manifest.size, manifest.sha256):
        return
    path.unlink()
    if not have:
        raise _altered(name, f"it has {size} bytes with another SHA-256 than its manifest says")
    # What was there of an earlier call is not what that call wrote.
    fetch(store, keys, name, manifest, path, progress)


def _have(file: t.BinaryIO, digest: t.Any, manifest: Manifest) -> int:
    """Return how many whole parts the file has, never the last one, and give them to the digest."""
    whole = min(os.fstat(file.fileno()).st_size // crypto.PART_BYTES, manifest.parts - 1)
    for _ in range(whole):
        digest.update(file.read(crypto.PART_BYTES))
    return whole


def _pieces(store: Store, name: str, data_key: bytes, first: int, parts: int) -> Iterator[bytes]:
    """Yield the plain bytes from a part on, in order, while further ones are on their way."""
    begins = iter(range(first, parts, PIECE_PARTS))
    with ThreadPoolExecutor(READERS) as readers:
        waiting: collections.deque[Future[bytes]] = collections.deque()
        try:
            while True:
                while len(waiting) <= READERS and (begin := next(begins, None)) is not None:
                    end = min(begin + PIECE_PARTS, parts)
                    waiting.append(readers.submit(_piece, store, name, data_key, begin, end, parts))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _piece(store: Store, name: str, data_key: bytes, begin: int, end: int, parts: int) -> bytes:
    """Return the plain bytes of parts ``begin`` to ``end``, read again when the store breaks off."""
    for attempt in range(ATTEMPTS):
        try:
            sealed = b"".join(store.read(name, begin * _PART, (end - begin) * _PART))
            break
        except ServiceError as error:
            if not error.retryable or attempt == ATTEMPTS - 1:
                raise
            time.sleep(error.retry_after or 0.2 * 2**attempt)
    plain = []
    for part in range(begin, end):
        offset = (part - begin) * _PART
        piece = sealed[offset : offset + _PART]
        try:
            plain.append(crypto.unseal(data_key, part, piece, name.encode(), last=part == parts - 1))
        except (ChainError, ValueError) as error:
            raise _altered(name, f"byte {part * _PART} and beyond are not what was written") from error
    return b"".join(plain)


def _altered(name: str, what: str) -> ChainError:
    return ChainError(f"{name}: {what}.", "Use another snapshot, or the copy in another store.", altered=name)
