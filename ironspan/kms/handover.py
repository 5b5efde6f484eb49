# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A new seed for the other control planes, while the vault that could open it is away.

An API server that starts makes a seed that only the vault and its own host know. The others read what it
writes from then on, so during an outage one restart would keep them from reading, and with one unreadable
secret an API server lists none. Therefore each seed is also sealed with keys derived from seeds that were
read from the cluster before, which every host has read. What is sealed is stored in etcd beside what the
vault's key has wrapped; who knows none of the former seeds has nothing of it. Another version of the vault's
key breaks the chain (seeds.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

COPIES = 8
"""One for each of the seeds read last: one would do, but nobody knows which ones another host has read."""
_SEED_BYTES, _NAME_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 16, 12, 16
_COPY_BYTES = _NAME_BYTES + _NONCE_BYTES + _SEED_BYTES + _TAG_BYTES


def seal(wrapped: bytes, seed: bytes, known: Mapping[bytes, bytes]) -> bytes:
    """Seal a seed once with each of some that are known.

    Args:
        wrapped: the seed as the vault's key has wrapped it.
        seed: the seed, 32 bytes.
        known: former seeds by the SHA-256 of their wrapped form.

    Returns:
        76 bytes for each, and nothing for none.
    """
    parts = []
    for digest, former in known.items():
        nonce = os.urandom(_NONCE_BYTES)
        parts.append(digest[:_NAME_BYTES] + nonce + _cipher(former).encrypt(nonce, seed, _bound(wrapped)))
    return b"".join(parts)


def open_sealed(wrapped: bytes, sealed: bytes, known: Mapping[bytes, bytes]) -> bytes | None:
    """Return what ``seal`` has sealed, None when no known seed opens it.

    Args:
        wrapped: the seed as the vault's key has wrapped it.
        sealed: what ``seal`` has returned on another host.
        known: seeds by the SHA-256 of their wrapped form.
    """
    named = {digest[:_NAME_BYTES]: seed for digest, seed in known.items()}
    for name, nonce, content in _copies(sealed):
        if name in named:
            try:
                return _cipher(named[name]).decrypt(nonce, content, _bound(wrapped))
            except InvalidTag:
                # It was changed, or belongs to another seed: as good as not there.
                continue
    return None


def _copies(sealed: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    for start in range(0, len(sealed) - _COPY_BYTES + 1, _COPY_BYTES):
        copy = sealed[start : start + _COPY_BYTES]
        yield copy[:_NAME_BYTES], copy[_NAME_BYTES:][:_NONCE_BYTES], copy[_NAME_BYTES + _NONCE_BYTES :]


def _cipher(former: bytes) -> AESGCM:
    # API servers derive the keys of secrets from the same seed without a salt.
    return AESGCM(HKDF(hashes.SHA256(), _SEED_BYTES, b"ironspan-kms handover", b"seed").derive(former))


def _bound(wrapped: bytes) -> bytes:
    return hashlib.sha256(wrapped).digest()
