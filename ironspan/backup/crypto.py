# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Encryption of what goes to a store: one data key an object, wrapped by a key that never goes there."""

from __future__ import annotations

import base64
import binascii
import collections.abc
import os
import pathlib
import typing as t

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from ironspan.backup.errors import ChainError
from ironspan.program.errors import KeyMissing, ProgramError

KEY_BYTES = 32
PART_BYTES = 1024 * 1024
"""Plain bytes of every part of a stream but its last."""
TAG_BYTES = 16


class Keys(t.Protocol):
    """What wraps and unwraps data keys. Versions are text that the keeper of the keys chose."""

    @property
    def current(self) -> str:
        """The version that ``wrap`` uses."""

    def wrap(self, data_key: bytes) -> tuple[str, bytes]:
        """Return the version of the key used, and the wrapped data key."""

    def unwrap(self, version: str, wrapped: bytes) -> bytes:
        """Return the data key. Raises KeyMissing when the version is not there or does not open it."""


class FileKeys:
    """Keys in a folder: ``<number>.key``, 32 bytes in base64 each; the highest number wraps (RFC 3394).

    Raises KeyMissing when the folder has no key, ProgramError when a key that is used is malformed.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    @property
    def current(self) -> str:
        """The version that ``wrap`` uses."""
        numbers = [int(path.stem) for path in self.folder.glob("*.key") if path.stem.isdigit()]
        if not numbers:
            raise KeyMissing(
                f"There is no key in {self.folder}.",
                "Put one there as 1.key: 32 random bytes in base64, readable by nobody else.",
            )
        return str(max(numbers))

    def wrap(self, data_key: bytes) -> tuple[str, bytes]:
        """Return the version of the key used, and the wrapped data key."""
        version = self.current
        return version, aes_key_wrap(self._key(version), data_key)

    def unwrap(self, version: str, wrapped: bytes) -> bytes:
        """Return the data key. Raises KeyMissing when the version is not there or does not open it."""
        try:
            return aes_key_unwrap(self._key(version), wrapped)
        except (InvalidUnwrap, ValueError) as error:
            raise KeyMissing(
                f"The key {self._path(version)} is not the one that this backup was encrypted with.",
                f"Find the right version {version}; another key may have been given its number.",
            ) from error

    def _path(self, version: str) -> pathlib.Path:
        return self.folder / f"{version}.key"

    def _key(self, version: str) -> bytes:
        path = self._path(version)
        if not version.isdigit() or not path.is_file():
            raise KeyMissing(
                f"The backup needs the key version {version!r}, which is not in {self.folder}.",
                "Bring that file back; backups that were encrypted with it cannot be read without it.",
            )
        try:
            key = base64.b64decode(path.read_text(encoding="ascii").strip(), validate=True)
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ProgramError(
                f"The key {path} is not base64.", "It has to be 32 bytes in base64."
            ) from error
        if len(key) != KEY_BYTES:
            raise ProgramError(f"The key {path} has {len(key)} bytes.", "It has to be 32 bytes in base64.")
        return key


def new_data_key() -> bytes:
    """Return a data key for one object; it must never encrypt a second one, as nonces are counters."""
    return os.urandom(KEY_BYTES)


def seal(data_key: bytes, counter: int, plain: bytes, associated: bytes, *, last: bool = False) -> bytes:
    """Return the AES-256-GCM ciphertext with its tag.

    Args:
        data_key: 32 bytes, of this object only.
        counter: number of this piece in its object; the nonce is 3 zero bytes, whether it is the last piece
            (1 byte), and the number (8 bytes), so pieces cannot be swapped and the end cannot be cut off.
        plain: what to encrypt.
        associated: what the tag covers too.
        last: this is the object's last piece.
    """
    return AESGCM(data_key).encrypt(_nonce(counter, last), plain, associated)


def unseal(data_key: bytes, counter: int, sealed: bytes, associated: bytes, *, last: bool = False) -> bytes:
    """Return the plain bytes of what ``seal`` made. Raises ChainError when they are not what was sealed."""
    try:
        return AESGCM(data_key).decrypt(_nonce(counter, last), sealed, associated)
    except InvalidTag as error:
        raise ChainError(f"Part {counter} of an encrypted object is not what was written.") from error


def parts(size: int) -> int:
    """Return how many encrypted parts ``size`` plain bytes make."""
    return max(1, -(-size // PART_BYTES))


def encrypt(
    chunks: collections.abc.Iterable[bytes], data_key: bytes, name: str
) -> collections.abc.Iterator[bytes]:
    """Yield the encrypted parts of a stream: of PART_BYTES plain bytes each but the last, tag behind each.

    Args:
        chunks: the plain bytes, in pieces of any size.
        data_key: 32 bytes, of this object only.
        name: of the object in the store; its bytes under another name do not decrypt.
    """
    counter = 0
    waiting = b""
    for part in _regroup(chunks, PART_BYTES):
        if counter or waiting:
            yield seal(data_key, counter, waiting, name.encode())
            counter += 1
        waiting = part
    yield seal(data_key, counter, waiting, name.encode(), last=True)


def decrypt(
    chunks: collections.abc.Iterable[bytes], data_key: bytes, name: str
) -> collections.abc.Iterator[bytes]:
    """Yield the plain parts of what ``encrypt`` made, none that was not verified.

    Raises:
        ChainError: the bytes are not those that were written, or the end is missing.
    """
    counter = 0
    waiting: bytes | None = None
    try:
        for part in _regroup(chunks, PART_BYTES + TAG_BYTES):
            if waiting is not None:
                yield unseal(data_key, counter, waiting, name.encode())
                counter += 1
            waiting = part
        yield unseal(data_key, counter, waiting or b"", name.encode(), last=True)
    except ChainError as error:
        raise ChainError(
            f"{name}: byte {counter * (PART_BYTES + TAG_BYTES)} and beyond are not what was written, "
            "or the end is missing.",
            "Use another snapshot, or the copy in another store.",
            altered=name,
        ) from error


def _nonce(counter: int, last: bool) -> bytes:
    return bytes([0, 0, 0, last]) + counter.to_bytes(8, "big")


def _regroup(chunks: collections.abc.Iterable[bytes], size: int) -> collections.abc.Iterator[bytes]:
    """Yield the same bytes in pieces of ``size``, the last one shorter."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)
