# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who wrote an object: Ed25519 signatures over its kind, its full name and its content.

A store's identity may create objects, and that is all it may prove. What an object says counts only when it
is signed by a key of the site's PKI store. Each part of the site has a key of its own: the members sign what
they write, a host that only drills signs verdicts and nothing else, and a host that only reads has none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import typing as t
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ironspan.program.errors import ProgramError

WRITER, DRILL = "writer", "drill"
PARTS = (WRITER, DRILL)
SCHEMA, UNSIGNED_SCHEMA = 2, 1
SIGNATURE_BYTES = 64
_CONTEXT = b"ironspan-etcd-backup 2"
_KEY_BYTES = 32
_REMEMBERED = 4096


class Proof:
    """Signs what this host writes and verifies what any host of the site wrote.

    Args:
        trusted: public keys (32 bytes) by part and version. All of them verify.
        private: the private key (32 bytes) of each part that this host has; it signs.

    Raises:
        ProgramError: a private key is not one of those that are trusted.
    """

    schema: int = SCHEMA

    def __init__(
        self, trusted: Mapping[str, Mapping[str, bytes]], private: Mapping[str, bytes] | None = None
    ) -> None:
        self._trusted = {
            (part, version): Ed25519PublicKey.from_public_bytes(key)
            for part, keys in trusted.items()
            for version, key in keys.items()
        }
        # An agent reads the same manifests every few seconds, and they never change.
        self._verified: set[tuple[bytes, str, str, bytes]] = set()
        self._signers: dict[str, tuple[str, Ed25519PrivateKey]] = {}
        for part, secret in (private or {}).items():
            key = Ed25519PrivateKey.from_private_bytes(secret)
            public = key.public_key().public_bytes_raw()
            versions = [version for version, other in trusted.get(part, {}).items() if other == public]
            if not versions:
                raise ProgramError(
                    f"The private key of the part {part} is not one of those that the settings trust.",
                    "Run playbooks/site.yml: it brings key and settings together.",
                )
            self._signers[part] = versions[0], key

    def signer(self, part: str) -> str:
        """Return the version of the key that signs for a part. Raises ProgramError when it is not here."""
        return self._signer(part)[0]

    def sign(self, part: str, kind: str, name: str, content: bytes) -> bytes:
        """Return the signature of an object.

        Args:
            part: whose key signs: WRITER or DRILL.
            kind: of the object.
            name: its full name in the store, without the store's own prefix.
            content: what is signed besides.

        Raises:
            ProgramError: this host has no key of that part.
        """
        return self._signer(part)[1].sign(_message(kind, name, content))

    def verifies(
        self, part: str, version: str, signature: bytes, kind: str, name: str, content: bytes
    ) -> bool:
        """Say whether a signature is of a trusted key of a part; for the other arguments see ``sign``."""
        key = self._trusted.get((part, version))
        if key is None:
            return False
        message = _message(kind, name, content)
        known = hashlib.sha256(message).digest(), part, version, signature
        if known in self._verified:
            return True
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified.add(known)
        return True

    def _signer(self, part: str) -> tuple[str, Ed25519PrivateKey]:
        if part not in self._signers:
            raise ProgramError(
                f"This host has no key that signs for the part {part}.",
                "Do this on a host that writes backups: one of the group etcd.",
            )
        return self._signers[part]


class _Unsigned(Proof):
    """The view of what was written before objects were signed: everything counts, nothing is written."""

    schema = UNSIGNED_SCHEMA

    def verifies(
        self, part: str, version: str, signature: bytes, kind: str, name: str, content: bytes
    ) -> bool:
        """Say yes: nothing of that time is signed, and who reads it this way was asked to."""
        return True


NOTHING = Proof({})
"""Believes nothing and signs nothing."""
UNSIGNED = _Unsigned({})
"""Reads schema 1, and nothing else."""


def open_proof(settings: Mapping[str, t.Any]) -> Proof:
    """Return what ``proof`` of the settings describes.

    Args:
        settings: ``trusted`` has public keys in base64 by part and version, ``sign`` the file of the private
            key, 32 bytes in base64, of each part that this host signs for.

    Raises:
        ProgramError: a key cannot be read, or is none.
    """
    trusted = {
        part: {version: _key(text, f"proof.trusted.{part}.{version}") for version, text in keys.items()}
        for part, keys in settings["trusted"].items()
    }
    private = {}
    for part, path in settings["sign"].items():
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ProgramError(
                f"The key {path} cannot be read: {error}.", "Run playbooks/site.yml: it brings the key."
            ) from error
        private[part] = _key(text, path)
    return Proof(trusted, private)


def canonical(fields: Mapping[str, t.Any]) -> bytes:
    """Return the bytes that stand for the fields of a JSON object: sorted keys, no blanks, ASCII."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _key(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProgramError(f"{where} is not base64.", "It has to be 32 bytes in base64.") from error
    if len(key) != _KEY_BYTES:
        raise ProgramError(f"{where} has {len(key)} bytes.", "It has to be 32 bytes in base64.")
    return key


def _message(kind: str, name: str, content: bytes) -> bytes:
    return b"\n".join([_CONTEXT, kind.encode(), name.encode(), content])
