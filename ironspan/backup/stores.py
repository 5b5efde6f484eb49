# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes stores, keys and clients of etcd of what the settings say."""

from __future__ import annotations

import collections.abc
import pathlib
import typing as t

from ironspan.backup.crypto import FileKeys, Keys
from ironspan.backup.names import Names
from ironspan.backup.proof import open_proof
from ironspan.backup.store import Store
from ironspan.program.errors import ProgramError

KINDS = ("azure", "file")
KEY_KINDS = ("file", "key_vault")


if t.TYPE_CHECKING:
    from ironspan.backup.settings import Settings
    from ironspan.etcd.client import EtcdClient


def names_of(settings: Settings) -> Names:
    """Return the names of the settings' site, with the keys that sign and verify.

    Raises:
        ProgramError: a key cannot be read.
    """
    return Names(settings.site, open_proof(settings.proof))


def client_of(settings: Settings) -> EtcdClient:
    """Return a client of the settings' cluster."""
    from ironspan.etcd.channel import Tls
    from ironspan.etcd.client import EtcdClient

    etcd = settings.etcd
    files = (pathlib.Path(name) for name in (etcd.ca, etcd.certificate, etcd.key))
    return EtcdClient(etcd.endpoints, Tls(*files) if etcd.ca else None)


def certificates_of(settings: Settings) -> tuple[pathlib.Path, ...]:
    """Return the files whose end is watched; none without TLS."""
    return tuple(pathlib.Path(name) for name in (settings.etcd.ca, settings.etcd.certificate) if name)


def open_store(settings: collections.abc.Mapping[str, t.Any]) -> Store:
    """Return the store that an entry of ``stores`` describes.

    Args:
        settings: the entry, as ironspan.backup.settings checked it.

    Raises:
        ProgramError: there is no such kind of store, or it refuses its settings.
    """
    kind = settings.get("kind")
    if kind == "file":
        from ironspan.backup.file_store import FileStore

        return FileStore(pathlib.Path(settings["path"]), settings.get("prefix", ""))
    if kind == "azure":
        # The SDK costs a second of start; commands that need no store do without.
        from ironspan.backup.azure.blob import open_azure

        return open_azure(settings)
    raise ProgramError(f"There is no store of the kind {kind!r}.", f"There are: {', '.join(KINDS)}.")


def open_keys(settings: collections.abc.Mapping[str, t.Any]) -> Keys:
    """Return the keys that ``keys`` of the settings describes.

    Args:
        settings: the entry, as ironspan.backup.settings checked it.

    Raises:
        ProgramError: there is no such kind of keys, or they refuse their settings.
    """
    kind = settings.get("kind")
    if kind == "file":
        return FileKeys(pathlib.Path(settings["folder"]))
    if kind == "key_vault":
        from ironspan.azure.keyvault import open_key_vault

        return open_key_vault(settings)
    raise ProgramError(f"There are no keys of the kind {kind!r}.", f"There are: {', '.join(KEY_KINDS)}.")
