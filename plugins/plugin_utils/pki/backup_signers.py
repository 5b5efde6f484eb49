# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys that sign what hosts write into the backup store (Ed25519): who may do what of it, by signature.

Each part of the site has a key of its own, so a host that proves backups cannot write any, and one that only
reads or deletes needs no secret at all. store.json has the public keys; all versions verify, the last signs.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PARTS = ("writer", "drill")
"""``writer``: epochs, snapshots and the log, by members. ``drill``: verdicts, by whoever drills."""
HEADER = "backup_signers"


class BackupSigners:
    """The signing keys of one store.

    Args:
        folder: the store's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def public(self) -> dict[str, list[str]]:
        """Return the public keys of each part, 32 bytes in base64, version 1 first; nothing of an old store.

        Raises:
            PkiError: store.json is damaged.
        """
        found = self._folder.header().get(HEADER, {})
        try:
            keys = {part: [str(key) for key in found.get(part, [])] for part in PARTS}
            if any(len(base64.b64decode(key, validate=True)) != 32 for one in keys.values() for key in one):
                raise ValueError
        except (AttributeError, TypeError, ValueError) as error:
            raise PkiError(
                f"{self._folder.path}/store.json is damaged.", "Restore it from a backup."
            ) from error
        return keys

    def ensure(self) -> bool:
        """Make the first keys where there are none, while the folder is locked; True when some were made."""
        missing = [part for part, keys in self.public().items() if not keys]
        for part in missing:
            self._make(part)
        return bool(missing)

    def prove(self) -> None:
        """Open every key.

        Raises:
            PkiError: one is missing, damaged, or not the one that store.json has.
        """
        for part, keys in self.public().items():
            for version, key in enumerate(keys, 1):
                if _public_of(self.key(part, version)) != key:
                    raise PkiError(
                        f"The key {secret_name(part, version)} of {self._folder.path} is not the one that "
                        "store.json names: one of the two was replaced.",
                        "Restore the folder from a backup.",
                    )

    def add(self) -> None:
        """Make another key of each part, while the folder is locked; it signs from now on."""
        for part in PARTS:
            self._make(part)

    def key(self, part: str, version: int) -> str:
        """Return a private key, 32 bytes as base64 and a newline. Raises PkiError when there is none."""
        name = secret_name(part, version)
        if not self._folder.has(self._folder.secret_file(name)):
            raise PkiError(
                f"The store {self._folder.path} has lost its key {name}.",
                "Restore the folder from a backup, or from its copy beside the backups (docs/backup.md).",
            )
        return self._folder.unseal(name).decode("ascii")

    def secrets(self) -> dict[str, Callable[[], str]]:
        """Return what opens the key of each part that signs, by the name documents use."""
        return {
            secret_name(part, len(keys)): functools.partial(self.key, part, len(keys))
            for part, keys in self.public().items()
            if keys
        }

    def _make(self, part: str) -> None:
        public = self.public()
        name = secret_name(part, len(public[part]) + 1)
        # The key first: a kill between the two leaves a key that nothing was signed with; it is used then.
        if not self._folder.has(self._folder.secret_file(name)):
            private = Ed25519PrivateKey.generate().private_bytes_raw()
            self._folder.seal(name, base64.b64encode(private) + b"\n")
        public[part].append(_public_of(self._folder.unseal(name).decode("ascii")))
        self._folder.change_header({HEADER: public})


def secret_name(part: str, version: int) -> str:
    """Return what the store and documents call a private key."""
    return f"backup-{part}-{version}"


def _public_of(private: str) -> str:
    try:
        key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(private.strip(), validate=True))
    except ValueError as error:
        raise PkiError("A key that signs backups is damaged.", "Restore the folder from a backup.") from error
    return base64.b64encode(key.public_key().public_bytes_raw()).decode("ascii")
