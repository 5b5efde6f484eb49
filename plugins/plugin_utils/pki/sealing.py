# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How one secret is encrypted: AES-256-GCM over the secret, authenticated together with its header and name.

A sealed file is magic, schema version, key id, nonce, ciphertext and tag, in that order and nothing else, so
that every single byte of it is covered: the header by the associated data, the rest by the tag. The secret's
name is part of the associated data too; a sealed file renamed to another secret's name does not open.
"""

from __future__ import annotations

import hashlib
import secrets

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"IRONSPAN-SEALED\n"
SCHEMA_VERSION = 1
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12
"""NIST SP 800-38D: 96-bit nonces; random ones are safe for 2**32 messages, a store holds a handful."""
_TAG_BYTES = 16
_HEADER_BYTES = len(MAGIC) + 1 + _KEY_ID_BYTES + _NONCE_BYTES


def key_id(key: bytes) -> str:
    """Return a short public name of a key: 16 hexadecimal digits of a labelled SHA-256."""
    return hashlib.sha256(b"ironspan pki key id\0" + key).hexdigest()[: 2 * _KEY_ID_BYTES]


def seal(key: bytes, name: str, secret: bytes) -> bytes:
    """Encrypt a secret.

    Args:
        key: 32 bytes.
        name: the secret's name, authenticated with it.
        secret: what to encrypt.

    Returns:
        The content of the sealed file.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    header = MAGIC + bytes([SCHEMA_VERSION]) + bytes.fromhex(key_id(key)) + nonce
    return header + AESGCM(key).encrypt(nonce, secret, header + name.encode())


def unseal(key: bytes, name: str, sealed: bytes) -> bytes:
    """Decrypt a sealed secret.

    Args:
        key: 32 bytes.
        name: the name the secret was sealed under.
        sealed: the content of the sealed file.

    Returns:
        The secret.

    Raises:
        PkiError: when the file is of another format, sealed with another key, or altered in any byte.
    """
    if len(sealed) < _HEADER_BYTES + _TAG_BYTES or not sealed.startswith(MAGIC):
        raise PkiError(f"The secret {name} is not a sealed file of ironspan, or it is cut short.", _RESTORE)
    version = sealed[len(MAGIC)]
    if version != SCHEMA_VERSION:
        raise PkiError(
            f"The secret {name} has format {version}; this version reads format {SCHEMA_VERSION}.",
            "Use the version of ironspan that wrote it.",
        )
    header, body = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
    sealed_with = header[len(MAGIC) + 1 : -_NONCE_BYTES].hex()
    if sealed_with != key_id(key):
        raise PkiError(
            f"The secret {name} was encrypted with key {sealed_with}; the key given is {key_id(key)}.",
            "Give the key that the store was made with (site_pki_key_file or IRONSPAN_PKI_KEY).",
        )
    try:
        return AESGCM(key).decrypt(header[-_NONCE_BYTES:], body, header + name.encode())
    except InvalidTag as error:
        raise PkiError(f"The secret {name} was altered, or belongs to another name.", _RESTORE) from error


_RESTORE = "Restore the store's folder from a backup."
