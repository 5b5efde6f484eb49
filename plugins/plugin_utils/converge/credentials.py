# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What only the PKI store gives: signatures, and the keys a control plane needs. Opened when first asked."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError


class Credentials:
    """The store of one site.

    Args:
        store: its folder.
        key_file: file of its key; empty means the environment.
    """

    def __init__(self, store: str, key_file: str) -> None:
        self._path = store
        self._key_file = key_file
        self._store: t.Any = None

    def sign(self, request: str, profile: str, expected: dict[str, t.Any]) -> str:
        """Sign a certificate request that asks for exactly what is expected.

        Raises:
            ExchangeError: it asks for something else, or the store cannot be used.
        """
        return self._ask(lambda store: str(store.sign(request, profile, expected)))

    def of_control_plane(self) -> dict[str, str]:
        """Return the private keys that kubeadm needs on a control plane host, by secret name."""
        return self._ask(lambda store: dict(store.control_plane_secrets()))

    def of_backup(self) -> dict[str, str]:
        """Return the keys for backups and the store itself, sealed, by secret name; nothing of no store."""
        return self._ask(lambda store: dict(store.backup_keys.secrets()) if store.exists() else {})

    def _ask[T](self, question: Callable[[t.Any], T]) -> T:
        # Imported late: it brings `cryptography`, and most executions need no credentials at all.
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, open_store

        try:
            if self._store is None:
                self._store = open_store(self._path, self._key_file or None)
            return question(self._store)
        except PkiError as error:
            raise ExchangeError(error.message.rstrip("."), error.remedy.rstrip(".")) from None
