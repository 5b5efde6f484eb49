# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What only the PKI store gives: signatures, and secrets by their names. Opened when first asked."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection

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

    def secrets(self, names: Collection[str]) -> dict[str, str]:
        """Return secrets by name, and of no other one; what the store does not have is left out.

        Args:
            names: those that the document of one host names.
        """
        if not names:
            return {}
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import handed_out

        return self._ask(lambda store: handed_out.secrets(store, names))

    def tpm(self, host: str) -> str:
        """Return what is recorded of a host's TPM, "" when nothing is. Raises ExchangeError."""
        return self._ask(lambda store: str(store.tpms.read(host)))

    def keep_tpm(self, host: str, record: str) -> None:
        """Record what a host's TPM is. Raises ExchangeError: the store cannot be used."""
        self._ask(lambda store: store.tpms.keep(host, record))

    def _ask[T](self, question: Callable[[t.Any], T]) -> T:
        # Imported late: it brings `cryptography`, and most executions need no credentials at all.
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, open_store

        try:
            if self._store is None:
                self._store = open_store(self._path, self._key_file or None)
            return question(self._store)
        except PkiError as error:
            raise ExchangeError(error.message.rstrip("."), error.remedy.rstrip(".")) from None
