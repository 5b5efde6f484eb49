# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What this host keeps of the vault's answers, sealed, so that API servers start while it cannot be reached.

Kept are the seeds that API servers had wrapped (32 bytes each, one a start of an API server, from which they
derive the keys of their secrets), by the SHA-256 of the wrapped seed; which of them were read from the
cluster, as other hosts know those; and when the vault opened anything last. All of it is one file, encrypted
with AES-256-GCM and a key in a file of root's; the vault's key that it belongs to is authenticated with it,
so the file of another vault, or a changed one, is no cache at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import threading
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ironspan.kms import handover
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
MAGIC = b"ironspan-kms-1\n"
MOST = 1000
"""Seeds kept: those used last. An API server makes one when it starts and when the vault's key changes."""
_NONCE_BYTES = 12


class Seeds:
    """The seeds that this host knows.

    Args:
        path: the file, in a folder that is there.
        key_file: file with 32 bytes as base64, readable by its owner only.
        owner: what the seeds were wrapped with: vault and name of the key.

    Raises:
        ProgramError: the key cannot be used.
    """

    def __init__(self, path: Path, key_file: Path, owner: str) -> None:
        self._path, self._owner = path, owner.encode()
        self._cipher = AESGCM(_key(key_file))
        self._lock = threading.Lock()
        self._seeds: dict[str, str] = {}
        self._read: dict[str, str] = {}
        self._confirmed = 0.0
        self._load()

    @property
    def confirmed(self) -> float:
        """When the vault was last seen to open what its key has wrapped, Unix time; 0 for never."""
        return self._confirmed

    def confirm(self, now: float) -> None:
        """Remember that the vault has just opened something."""
        with self._lock:
            self._confirmed = now
            self._keep()

    def get(self, wrapped: bytes, version: str) -> bytes | None:
        """Return a seed that was read from the cluster, None when it is not known.

        Args:
            wrapped: the wrapped seed.
            version: of the vault's key that has wrapped it.
        """
        digest = hashlib.sha256(wrapped).hexdigest()
        with self._lock:
            seed = self._seeds.pop(digest, None)
            if seed is None:
                return None
            self._seeds[digest] = seed  # the one used last is the last one
            self._read[digest] = version
        return base64.b64decode(seed)

    def put(self, wrapped: bytes, seed: bytes, read: str = "") -> None:
        """Remember a seed; the file has it when this returns.

        Args:
            wrapped: the wrapped seed.
            seed: the seed.
            read: version of the vault's key, for a seed that was read from the cluster and not made just now.
        """
        digest = hashlib.sha256(wrapped).hexdigest()
        with self._lock:
            self._seeds.pop(digest, None)
            self._seeds[digest] = base64.b64encode(seed).decode("ascii")
            if read:
                self._read[digest] = read
            for oldest in list(self._seeds)[:-MOST]:
                del self._seeds[oldest]
                self._read.pop(oldest, None)
            self._keep()

    def seal(self, wrapped: bytes, seed: bytes, version: str) -> bytes:
        """Return a seed, sealed for who knows one of those that were read from the cluster last.

        Args:
            wrapped: the wrapped seed.
            seed: the seed.
            version: of the vault's key. Seeds of other versions are left out: with another version the vault
                alone opens what is made from then on, whoever has got hold of seeds before.
        """
        with self._lock:
            shared = [digest for digest in self._seeds if self._read.get(digest) == version]
            shared = shared[-handover.COPIES :]
            known = {bytes.fromhex(digest): base64.b64decode(self._seeds[digest]) for digest in shared}
        return handover.seal(wrapped, seed, known)

    def open(self, wrapped: bytes, sealed: bytes) -> bytes | None:
        """Return the seed that another host has sealed, None when this host knows none that opens it."""
        with self._lock:
            known = {bytes.fromhex(digest): base64.b64decode(seed) for digest, seed in self._seeds.items()}
        return handover.open_sealed(wrapped, sealed, known)

    def forget(self) -> None:
        """Forget all seeds: the vault says that their key is not to be used."""
        with self._lock:
            self._seeds, self._read, self._confirmed = {}, {}, 0.0
            self._path.unlink(missing_ok=True)

    def _load(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        try:
            if not content.startswith(MAGIC):
                raise ValueError("no such format")
            nonce, sealed = content[len(MAGIC) :][:_NONCE_BYTES], content[len(MAGIC) + _NONCE_BYTES :]
            kept = json.loads(self._cipher.decrypt(nonce, sealed, MAGIC + self._owner))
            self._seeds, self._confirmed = dict(kept["seeds"]), float(kept["confirmed"])
            self._read = dict(kept.get("read", {}))
        except (InvalidTag, ValueError, KeyError, TypeError):
            # It is for outages only: the vault has all of it.
            LOG.warning("%s is not of this vault and key, or damaged: nothing of it is used", self._path)

    def _keep(self) -> None:
        kept = {"seeds": self._seeds, "read": self._read, "confirmed": self._confirmed}
        plain = json.dumps(kept).encode()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = MAGIC + nonce + self._cipher.encrypt(nonce, plain, MAGIC + self._owner)
        try:
            write_file(self._path, sealed, 0o600)
        except OSError as error:
            LOG.warning("%s cannot be written: %s", self._path, error.strerror)


def _key(path: Path) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise ProgramError(f"Others can read {path}.", f"Run: chmod 600 {path}")
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}.", "Run playbooks/site.yml.") from None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ProgramError(f"{path} is no key of 32 bytes.", "Run playbooks/site.yml, which writes it.")
    return key
