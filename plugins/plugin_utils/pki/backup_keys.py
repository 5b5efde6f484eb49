# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What backups of etcd need of the store: keys that wrap their data keys, and the store itself as one text.

Keys are numbered from 1 and never deleted: a backup opens with the version that it was made with.
store.json counts them, so that one that is lost is missed and not made again.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import secrets
import tarfile
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    backup_signers,
    bmcs,
    events,
    ironic,
    sealing,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.backup_signers import BackupSigners
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.files import locked
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import BUNDLE, Folder, unread
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import ROTATABLE, parsed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.header import FROM_COPIES, secrets_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import KEY_BYTES

NAME = "backup-key"
FORMAT = "ironspan-recovery"
_UNREAD = f"{BUNDLE}.unread"
SCHEMA = 1
_STAMPED = ("encryption", backup_signers.HEADER, bmcs.FIELD, ironic.FIELD, events.FIELD)
"""Fields of store.json that a recovery needs, in the order in which the stamp has them."""


class BackupKeys:
    """The keys for backups in one store.

    Args:
        folder: the store's folder.
        prove: opens everything that the store has, or raises; called while the folder is locked.
    """

    def __init__(self, folder: Folder, prove: Callable[[], None]) -> None:
        self._folder = folder
        self._prove = prove
        self.signers = BackupSigners(folder)

    def versions(self) -> list[int]:
        """Return the versions there are; the last one wraps what is written from now on."""
        return list(range(1, int(self._folder.header().get("backup_keys", 0)) + 1))

    def ensure(self) -> bool:
        """Make the first keys, or prove that all are there; True when some were made.

        To be called while the folder is locked.

        Raises:
            PkiError: a key is missing or damaged.
        """
        made = not self.versions()
        if made:
            self._make(1)
        signers = self.signers.ensure()
        self.prove()
        return made or signers

    def prove(self) -> None:
        """Open every key.

        Raises:
            PkiError: one is missing or damaged.
        """
        for version in self.versions():
            self.key(version)
        self.signers.prove()

    def add(self) -> int:
        """Make keys that wrap and sign what is written from now on, and return the version of the first."""
        with self._folder.writing():
            self.ensure()
            version = self.versions()[-1] + 1
            self._make(version)
            self.signers.add()
        return version

    def key(self, version: int) -> str:
        """Return a key, 32 bytes as base64 and a newline.

        Raises:
            PkiError: there is no such key.
        """
        if not self._folder.has(self._folder.secret_file(secret_name(version))):
            raise PkiError(
                f"The store {self._folder.path} has lost its backup key {version}.",
                FROM_COPIES,
            )
        return self._folder.unseal(secret_name(version)).decode("ascii")

    def stamp(self) -> str:
        """Return a text that is another whenever what a recovery needs of the store has changed."""
        header = self._folder.header()
        states = {name: parsed(header.get("generations", {}).get(name)) for name in ROTATABLE}
        needed = [header["site_uid"], header["key_id"], self.versions()]
        needed += [[name, state.signing, *state.trusted] for name, state in states.items()]
        # A site without has the stamp that it always had.
        needed += [header[field] for field in _STAMPED if field in header]
        return hashlib.sha256(json.dumps(needed).encode()).hexdigest()[:16]

    def bundle(self) -> str:
        """Return the whole store as one text, sealed with the store's key; the same text for the same stamp.

        It is kept in the store's folder, so that making it again does not give another one. A former one
        stays until the store has proven complete and the new one was read back.

        Raises:
            PkiError: the store is not complete, or cannot be written.
        """
        with self._folder.writing():
            stamp = self.stamp()
            kept = self._folder.public(BUNDLE).decode() if self._folder.has(BUNDLE) else ""
            if kept and described(kept)["stamp"] == stamp:
                return kept
            self._prove()
            header = self._folder.header()
            packed = _packed(self._folder.path, header)
            sealed = self._folder.sealed(FORMAT, packed)
            content = {
                "format": FORMAT,
                "schema": SCHEMA,
                "site_uid": header["site_uid"],
                "key_id": header["key_id"],
                "stamp": stamp,
                "sealed": base64.b64encode(sealed).decode("ascii"),
            }
            text = json.dumps(content) + "\n"
            self._folder.publish(_UNREAD, text.encode())
            read = described(self._folder.public(_UNREAD).decode())
            if self._folder.opened(FORMAT, base64.b64decode(read["sealed"])) != packed:
                raise unread(self._folder.path / _UNREAD)
            (self._folder.path / _UNREAD).replace(self._folder.path / BUNDLE)
        return text

    def secrets(self) -> dict[str, Callable[[], str]]:
        """Return what opens each secret for backups, by the name documents use; nothing is opened yet."""
        keys = {secret_name(version): functools.partial(self.key, version) for version in self.versions()}
        return {**keys, **self.signers.secrets(), recovery_name(self.stamp()): self.bundle}

    def _make(self, version: int) -> None:
        # The key first: a kill between the two leaves a key that nothing was encrypted with; it is used then.
        if not self._folder.has(self._folder.secret_file(secret_name(version))):
            self._folder.seal(secret_name(version), base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
        self._folder.change_header({"backup_keys": version})


def secret_name(version: int) -> str:
    """Return what the store and documents call a key."""
    return f"{NAME}-{version}"


def recovery_name(stamp: str) -> str:
    """Return what documents call the bundle of a stamp."""
    return f"recovery-{stamp}"


def described(bundle: str) -> Mapping[str, t.Any]:
    """Return the fields of a bundle.

    Raises:
        PkiError: it is none, or of a later format.
    """
    try:
        content = json.loads(bundle)
        if content["format"] != FORMAT or content["schema"] != SCHEMA:
            raise ValueError
        base64.b64decode(content["sealed"], validate=True)
        return t.cast("Mapping[str, t.Any]", {**content, "stamp": str(content["stamp"])})
    except (ValueError, KeyError, TypeError) as error:
        raise PkiError(
            "This is no recovery bundle of a PKI store, or it is damaged.",
            "Take another one of the folder recovery in the backup store.",
        ) from error


def recover(bundle: str, key: bytes, target: Path) -> list[str]:
    """Rebuild a store's folder from its bundle.

    Args:
        bundle: the text of the bundle.
        key: the key that the store is sealed with.
        target: the folder to make; it must not exist, or be empty.

    Returns:
        The files of the store.

    Raises:
        PkiError: another key, a damaged bundle, or something is in the folder. Nothing was written then.
    """
    content = sealing.unseal(key, FORMAT, base64.b64decode(described(bundle)["sealed"]))
    if target.exists() and any(target.iterdir()):
        raise PkiError(f"{target} is not empty.", "Move it away: a store is never written over another one.")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(target), tarfile.open(fileobj=io.BytesIO(content)) as archive:
        # store.json is last: a folder without it is not a store, and can be recovered again.
        archive.extractall(target, filter="data")
        return sorted(archive.getnames())


def _packed(folder: Path, header: Mapping[str, t.Any]) -> bytes:
    """Return the store's files as a tar, store.json last; not what was put aside."""
    parts = ("authorities", "public", secrets_of(dict(header)))
    names = [path.relative_to(folder).as_posix() for part in parts for path in (folder / part).glob("*")]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in [*sorted(names), "store.json"]:
            data = (folder / name).read_bytes()
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o600 if name.endswith(".sealed") else 0o644
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()
