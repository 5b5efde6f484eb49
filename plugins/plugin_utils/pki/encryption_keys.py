# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in encrypting secrets: which providers API servers have, and the keys of secretbox.

Keys are never deleted: a backup of etcd holds secrets as they were stored when it was made.
"""

from __future__ import annotations

import base64
import datetime
import json
import secrets
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import encryption_state as states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import KEY_BYTES

SCHEMA = 3
"""Format of store.json that has it: older versions, which would let API servers forget their keys, refuse."""
FIELD = "encryption"
ENDPOINT = "unix:///run/ironspan-kms/kms.sock"
TIMEOUT = "10s"
PREFIX = "encryption-key-"
CACHE_KEY = "encryption-cache-key"
"""Seals what a control plane keeps of a vault; not needed to recover anything."""


class EncryptionKeys:
    """How one store's site encrypts secrets.

    Args:
        folder: the store's folder.
        clock: current time with time zone.
    """

    def __init__(self, folder: Folder, clock: t.Callable[[], datetime.datetime]) -> None:
        self._folder = folder
        self._clock = clock

    def state(self) -> Encryption:
        """Return how secrets are stored.

        Raises:
            PkiError: store.json is damaged.
        """
        try:
            return states.parsed(self._folder.header().get(FIELD))
        except (KeyError, TypeError, ValueError) as error:
            raise PkiError(
                f"{self._folder.path}/store.json is damaged.", "Restore it from a backup."
            ) from error

    def begin(self, kind: str) -> Encryption:
        """Choose how a site that has no secrets yet stores them; one that has chosen is left alone."""
        with self._folder.writing():
            state = self.state()
            if not state.used and kind != states.IDENTITY:
                state = states.begun(kind)
                self._keep(state)
        return state

    def move(self, move: str, kind: str) -> Encryption:
        """Go to another stage; see encryption.py.

        The caller has made sure that API servers have followed the stage before. A key that the stage needs
        is made first, then one file is replaced, so that a kill leaves the old stage or the new one.

        Raises:
            PkiError: the stages come in another order, or the store cannot be used.
        """
        with self._folder.writing():
            state = encryption.moved(self.state(), move, kind, f"{self._clock():%Y-%m-%dT%H:%M:%SZ}")
            self._keep(state)
        return state

    def end_stage(self) -> Encryption:
        """End the stage ``drop``: all API servers have followed."""
        with self._folder.writing():
            state = encryption.ended(self.state())
            self._keep(state)
        return state

    def prove(self) -> None:
        """Open every key that this site has had.

        Raises:
            PkiError: one is lost or damaged.
        """
        for name in self.state().known:
            if states.kind_of(name) == states.SECRETBOX:
                self.key(name)

    def key(self, provider: str) -> str:
        """Return the key of a secretbox provider, 32 bytes as base64.

        Raises:
            PkiError: it is lost or damaged.
        """
        return self._opened(PREFIX + provider)

    def cache_key(self) -> str:
        """Return the key that seals what a control plane keeps of a vault, 32 bytes as base64."""
        return self._opened(CACHE_KEY)

    def configuration(self) -> str:
        """Return the file that API servers read: an EncryptionConfiguration, as JSON."""
        providers = [self._described(name) for name in self.state().providers]
        content = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": providers}],
        }
        return json.dumps(content, indent=1) + "\n"

    def secrets(self) -> dict[str, t.Callable[[], str]]:
        """Return what opens each secret of API servers, by the name documents use; nothing is opened yet."""
        state = self.state()
        if not state.used:
            return {}
        found = {state.secret_name: self.configuration}
        return {**found, CACHE_KEY: self.cache_key} if state.needs_plugin else found

    def _described(self, provider: str) -> dict[str, t.Any]:
        kind = states.kind_of(provider)
        if kind == states.SECRETBOX:
            return {kind: {"keys": [{"name": provider, "secret": self.key(provider)}]}}
        if kind == states.KMS:
            return {kind: {"apiVersion": "v2", "name": provider, "endpoint": ENDPOINT, "timeout": TIMEOUT}}
        return {kind: {}}

    def _keep(self, state: Encryption) -> None:
        before = self.state()
        for name in state.providers:
            if states.kind_of(name) == states.SECRETBOX:
                self._ensure(PREFIX + name, new=name not in before.known)
        if state.needs_plugin:
            self._ensure(CACHE_KEY, new=True)
        self._folder.change_header({"schema": SCHEMA, FIELD: state.as_dict()})

    def _ensure(self, name: str, *, new: bool) -> None:
        """Make a key, or prove that it is there; a kill may have left one that nothing was encrypted with."""
        if new and not self._folder.has(self._folder.secret_file(name)):
            self._folder.seal(name, base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
        self._opened(name)

    def _opened(self, name: str) -> str:
        return self._folder.kept(name).decode("ascii").strip()
