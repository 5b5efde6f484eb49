# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What documents need of the PKI store: public certificates and the site's identity."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import wanted_kind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    Encryption,
    begun,
    parsed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

NOT_MADE = "f" * 64
"""Stands for the fingerprint of an authority that a run in check mode must not make."""

NO_KEY = "A" * 43 + "="
"""Stands for a public key that a run in check mode must not make."""


PEER_NAME = "etcd-peer.ironspan.internal"
"""A name that certificates of members of etcd have, and no certificate of a client of etcd."""


class Authorities(t.Protocol):
    """The public side of a PKI store."""

    def uid(self) -> str:
        """Return the site's random identity."""

    def certificate_pem(self, name: str) -> str:
        """Return the certificates to trust of an authority: two while it is being changed for another."""

    def sha256(self, name: str) -> str:
        """Return the fingerprint of the certificate that an authority signs with."""

    def signing_pem(self, name: str) -> str:
        """Return the certificate that an authority signs with, alone."""

    def secret_name(self, name: str) -> str:
        """Return the name of the secret that is an authority's key, or the service account key."""

    def service_account_public_pem(self) -> str:
        """Return the public keys that service account tokens are checked with."""

    def trust_stamp(self) -> str:
        """Return a text that is another whenever what reads all this only once has to start again."""

    def backup_keys(self) -> list[int]:
        """Return the versions of the keys for backups."""

    def backup_signers(self) -> dict[str, list[str]]:
        """Return the public keys that signatures of backups are verified with, by part, version 1 first."""

    def recovery_stamp(self) -> str:
        """Return a text that is another whenever what a recovery needs of the store has changed."""

    def encryption(self) -> Encryption:
        """Return how API servers encrypt secrets."""

    def peers_named(self) -> bool:
        """Tell whether all members of etcd have certificates with the name of peers."""

    def ironic(self) -> dict[str, t.Any]:
        """Return the names of the secrets of the site's own Ironic: ``password``, and ``keys`` of backups."""

    def events(self) -> dict[str, str]:
        """Return the names of the secrets of ``ironspan-events``: ``token``, and ``account`` or ""."""

    def bmc_pem(self) -> str:
        """Return the certificate of the authority for BMCs, "" of a site that has none."""


class StoreAuthorities:
    """Reads the site's PKI store; opened when something is first asked for.

    Args:
        site: says where the store and its key are.
        make: make what is missing in the store; without it (check mode) an empty store is answered with
            stand-ins, so that every certificate shows up as a change.
    """

    def __init__(self, site: Site, make: bool) -> None:
        self._site = site
        self._make = make
        self._store: t.Any = None
        self.made: list[str] = []
        self._known: dict[tuple[str, str], str] = {}

    def uid(self) -> str:
        """Return the site's random identity."""
        return self._ask("uid", "", lambda store: str(store.site_uid()), "not-made-yet")

    def certificate_pem(self, name: str) -> str:
        """Return the certificates to trust of an authority."""
        return self._ask("pem", name, lambda store: str(store.ca(name).certificate_pem), "(not made yet)\n")

    def signing_pem(self, name: str) -> str:
        """Return the certificate that an authority signs with, alone."""
        return self._ask("signing", name, lambda store: str(store.ca(name).signing_pem), "(not made yet)\n")

    def secret_name(self, name: str) -> str:
        """Return the name of the secret that is an authority's key, or the service account key."""
        return self._ask("secret", name, lambda store: str(store.secret_name(name)), f"{name}-not-made-yet")

    def sha256(self, name: str) -> str:
        """Return the fingerprint of the certificate that an authority signs with."""
        return self._ask("sha256", name, lambda store: str(store.ca(name).sha256), NOT_MADE)

    def service_account_public_pem(self) -> str:
        """Return the public keys that service account tokens are checked with."""
        return self._ask(
            "account", "", lambda store: str(store.service_account_public_key()), "(not made yet)\n"
        )

    def trust_stamp(self) -> str:
        """Return a text that is another whenever what reads all this only once has to start again."""
        return self._ask("stamp", "", lambda store: str(store.trust_stamp()), "(not made yet)")

    def backup_keys(self) -> list[int]:
        """Return the versions of the keys for backups."""
        found = self._ask("keys", "", lambda store: " ".join(map(str, store.backup_keys.versions())), "")
        return [int(version) for version in (found or "1").split()]

    def backup_signers(self) -> dict[str, list[str]]:
        """Return the public keys that signatures of backups are verified with, by part, version 1 first."""
        stand_in = json.dumps({"writer": [NO_KEY], "drill": [NO_KEY]})
        text = self._ask(
            "signers", "", lambda store: json.dumps(store.backup_keys.signers.public()), stand_in
        )
        # A store of before signing, in check mode.
        return {part: keys or [NO_KEY] for part, keys in json.loads(text).items()}

    def recovery_stamp(self) -> str:
        """Return a text that is another whenever what a recovery needs of the store has changed."""
        return self._ask("recovery", "", lambda store: str(store.backup_keys.stamp()), "not-made-yet")

    def peers_named(self) -> bool:
        """Tell whether all members of etcd have certificates with the name of peers."""
        return self._ask("peers", "", lambda store: "yes" if store.peers_named() else "no", "yes") == "yes"

    def ironic(self) -> dict[str, t.Any]:
        """Return the names of the secrets of the site's own Ironic; in check mode those that it will have."""
        stand_in = json.dumps(
            {"password": "ironic-password-1", "keys": [{"name": "ironic-backup-key-1", "version": 1}]}
        )

        def read(store: t.Any) -> str:
            if self._make:
                store.ironic.ensure()
            return json.dumps(store.ironic.names())

        return t.cast("dict[str, t.Any]", json.loads(self._ask("ironic", "", read, stand_in)))

    def events(self) -> dict[str, str]:
        """Return the names of the secrets of ``ironspan-events``; in check mode those that it will have."""

        def read(store: t.Any) -> str:
            if self._make:
                store.events.ensure()
            return json.dumps(store.events.names())

        stand_in = json.dumps({"token": "events-token-1", "account": ""})
        return t.cast("dict[str, str]", json.loads(self._ask("events", "", read, stand_in)))

    def bmc_pem(self) -> str:
        """Return the certificate of the authority for BMCs, "" of a site that has none."""
        return self._ask("bmc", "", lambda store: str(store.bmcs.authority_pem()), "")

    def encryption(self) -> Encryption:
        """Return how API servers encrypt secrets; of a site that is not built yet, how it will."""
        begins = json.dumps(begun(wanted_kind(self._site)).as_dict())
        text = self._ask(
            "encryption", "", lambda store: json.dumps(store.encryption.state().as_dict()), begins
        )
        return parsed(json.loads(text))

    def _ask(self, what: str, name: str, read: t.Callable[[t.Any], str], stand_in: str) -> str:
        key = (what, name)
        if key not in self._known:
            store = self._opened()
            self._known[key] = read(store) if self._make or store.exists() else stand_in
        return self._known[key]

    def _opened(self) -> t.Any:
        if self._store is None:
            # Imported late: it brings `cryptography` with it.
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store

            self._store = open_store(self._site.pki_store, self._site.pki_key_file or None)
            if self._make:
                self.made = list(self._store.ensure_cas())
                if "store" in self.made:
                    # Later the way goes through stages: what is stored must stay readable.
                    self._store.encryption.begin(wanted_kind(self._site))
        return self._store
