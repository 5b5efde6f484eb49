# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site's authorities and what only they can do: sign, and let the controller in.

The key of the store is asked for only when a secret is needed, so public certificates can be read without it.
"""

from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates, profiles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.backup_keys import BackupKeys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.bmcs import BmcSecrets
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_keys import EncryptionKeys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.events import EventSecrets
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import BUNDLE, Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    ROTATABLE,
    SERVICE_ACCOUNT,
    Generations,
    ended,
    moved,
    parsed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.header import PEERS_NAMED
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.ironic import IronicSecrets
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.material import (
    Material,
    certificate_file,
    secret_name,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing import Signer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.tpms import TpmRecords
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

COMPLETE = "complete"
"""Field of store.json: everything was there once."""


class CertificateAuthority(t.NamedTuple):
    """One authority.

    Args:
        name: "etcd", "kubernetes" or "front-proxy".
        certificate_pem: the certificates to trust: one, or two while the authority is being changed.
        sha256: fingerprint of the one that signs.
        key_pem: opens the sealed key of the one that signs when it is called, not before.
        signing_pem: the certificate that signs, alone.
    """

    name: str
    certificate_pem: str
    sha256: str
    key_pem: t.Callable[[], str]
    signing_pem: str


def open_store(
    path: str | Path,
    key_source: str | Path | None = None,
    environment: t.Mapping[str, str] | None = None,
    clock: t.Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
) -> Store:
    """Open a store; nothing is read or made yet.

    Args:
        path: the store's folder. It need not exist: ``ensure_cas`` makes it.
        key_source: the key's file; None or "" means the environment variable IRONSPAN_PKI_KEY.
        environment: where to look for that variable, the process environment by default.
        clock: current time with time zone, for tests.

    Returns:
        The store.
    """
    folder = Folder(Path(path).expanduser(), lambda: load_key(key_source, environment))
    return Store(folder, clock)


class Store(Signer):
    """The site's authorities and what only they can do."""

    def __init__(self, folder: Folder, clock: t.Callable[[], datetime.datetime]) -> None:
        self.path = folder.path
        self._folder = folder
        super().__init__(clock)
        self._material = Material(folder, clock)
        self.backup_keys = BackupKeys(folder, self._prove)
        self.encryption = EncryptionKeys(folder, clock)
        self.bmcs = BmcSecrets(folder, clock)
        self.ironic = IronicSecrets(folder)
        self.events = EventSecrets(folder)
        self.tpms = TpmRecords(folder)

    # -- making and checking -----------------------------------------------------------------------

    def exists(self) -> bool:
        """Tell whether a store was made in this folder."""
        return self._folder.exists()

    def ensure_cas(self) -> list[str]:
        """Make whatever of the store is missing, and open every secret to prove key and files are right.

        Returns:
            The names of what was made, empty when the store was complete.

        Raises:
            PkiError: wrong key, damaged or foreign folder. Nothing is overwritten.
        """
        with self._folder.writing() as new:
            # A store that was complete once is never filled up: what is missing then is lost.
            complete = self._folder.header().get(COMPLETE, False) or self._folder.has(BUNDLE)
            made = ["store"] if new else []
            for name in (*profiles.AUTHORITIES, SERVICE_ACCOUNT):
                numbers = self.generations(name).trusted
                results = [self._material.ensure(name, number, make=not complete) for number in numbers]
                made += [name] if any(results) else []
            made += ["backup-key"] if self.backup_keys.ensure() else []
            self.encryption.prove()
            self.bmcs.prove()
            self.ironic.prove()
            self.events.prove()
            if not self._folder.header().get(COMPLETE):
                self._folder.change_header({COMPLETE: True})
        return made

    def _prove(self) -> None:
        """Open everything that store.json says there is, while the folder is locked."""
        for name in (*profiles.AUTHORITIES, SERVICE_ACCOUNT):
            for number in self.generations(name).trusted:
                self._material.ensure(name, number, make=False)
        self.backup_keys.prove()
        self.encryption.prove()
        self.bmcs.prove()
        self.ironic.prove()
        self.events.prove()

    # -- reading -----------------------------------------------------------------------------------

    def site_uid(self) -> str:
        """Return the site's random identity (16 hexadecimal digits), made once with the store.

        It names the etcd cluster (token, data folder), so a member never takes up another cluster's data.
        """
        return str(self._folder.header()["site_uid"])

    def renew_site_uid(self) -> str:
        """Give the site another identity and return it, for a new cluster after the old one was deleted.

        A member that was away when its cluster was deleted keeps old data; under another identity it can
        neither start with them nor be taken for a member of the new cluster.
        """
        self._folder.renew_site_uid()
        return self.site_uid()

    def ca(self, name: str) -> CertificateAuthority:
        """Return an authority: "etcd", "kubernetes" or "front-proxy".

        Raises:
            PkiError: unknown name, store not made yet, or damaged certificate.
        """
        if name not in profiles.AUTHORITIES:
            raise PkiError(
                f"There is no authority {name!r}.", f"Use one of: {', '.join(profiles.AUTHORITIES)}."
            )
        state = self.generations(name)
        signing = self._material.certificate(name, state.signing)
        order = list(state.trusted)
        if name in profiles.READ_BY_KUBEADM:
            order.sort(key=lambda number: number != state.signing)
        bundle = [self._material.certificate(name, number) for number in order]
        return CertificateAuthority(
            name,
            "".join(certificates.certificate_pem(certificate) for certificate in bundle),
            certificates.certificate_sha256(signing),
            lambda: certificates.private_pem(self._material.pair(name, state.signing)[1]).decode(),
            certificates.certificate_pem(signing),
        )

    def service_account_key(self) -> str:
        """Return the private key that signs service account tokens, PEM."""
        return self._material.service_account_key(self.generations(SERVICE_ACCOUNT).signing)

    def service_account_public_key(self) -> str:
        """Return the public keys that tokens are checked with, PEM; the one in use comes first."""
        state = self.generations(SERVICE_ACCOUNT)
        order = sorted(state.trusted, key=lambda number: number != state.signing)
        return "".join(self._material.service_account_public_key(number) for number in order)

    def secret_name(self, name: str) -> str:
        """Return what documents call the key in use; another generation has another name."""
        return secret_name(name, self.generations(name).signing)

    def change_key(self, key_source: str | Path) -> None:
        """Encrypt all secrets with the key in another file, which opens the store from then on.

        The recovery bundle stays as it is until another one, which the new key opens, was read back.
        """
        self.ensure_cas()
        self._folder.change_key(load_key(key_source))
        if self._folder.has(BUNDLE):
            self.backup_keys.bundle()

    def forget(self) -> tuple[list[str], list[str]]:
        """Delete what was put aside: secrets under former keys, keys of dropped generations.

        Returns:
            What was deleted, and what stays because this store may not have it; names in its folder.

        Raises:
            PkiError: the store is not complete. Nothing was deleted then.
        """
        with self._folder.writing():
            self._prove()
            return self._folder.forget()

    # -- changing an authority ---------------------------------------------------------------------

    def generations(self, name: str) -> Generations:
        """Return which generation signs and which are trusted, of an authority or the service account key."""
        try:
            return parsed(self._folder.header().get("generations", {}).get(name))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PkiError(f"{self.path}/store.json is damaged.", "Restore it from a backup.") from error

    def peers_named(self) -> bool:
        """Tell whether the certificates of all members of etcd were seen to have the name of peers."""
        return bool(self._folder.header().get(PEERS_NAMED, False))

    def name_peers(self) -> None:
        """Say that they have it; stores of older versions do not say so until somebody has looked."""
        with self._folder.writing():
            self._folder.change_header({PEERS_NAMED: True})

    def trust_stamp(self) -> str:
        """Return a text that is another whenever what is trusted, or the service account key, has changed."""
        states = {name: self.generations(name) for name in ROTATABLE}
        stamps = [f"{name} {state.changes}" for name, state in states.items()]
        return ", ".join([*stamps, f"key {states[SERVICE_ACCOUNT].signing}"])

    def authority_certificates(self, name: str) -> dict[int, x509.Certificate]:
        """Return the certificates of an authority's generations, those that were dropped too."""
        numbers = range(1, max(self.generations(name).trusted) + 1)
        return {
            number: self._material.certificate(name, number)
            for number in numbers
            if self._folder.has(certificate_file(name, number))
        }

    def move(self, name: str, move: str) -> Generations:
        """Take an authority, or the service account key, to another stage; see generations.py.

        The caller has made sure that hosts have followed the stage before. What the stage needs is made
        first, then one file is replaced, so that a kill leaves the old stage or the new one.

        Raises:
            PkiError: the stages come in another order, or the store cannot be used.
        """
        with self._folder.writing():
            now = f"{self._clock():%Y-%m-%dT%H:%M:%SZ}"
            before = self.generations(name)
            state = moved(name, before, move, now)
            for number in state.trusted:
                self._material.ensure(name, number, make=number not in before.trusted)
            self._folder.change_generations(name, state.as_dict())
        return state

    def end_stage(self, name: str) -> Generations:
        """End the stage ``drop``: all hosts have followed. Keys of dropped generations are put aside."""
        with self._folder.writing():
            state = ended(self.generations(name))
            self._folder.change_generations(name, state.as_dict())
            for number in range(1, max(state.trusted) + 2):
                if not state.stage and number not in state.trusted:
                    self._material.remove(name, number, whole=number > state.signing)
        return state

    def _pair(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        return self._material.pair(name, self.generations(name).signing)

    def _trusted(self, name: str) -> str:
        return self.ca(name).certificate_pem
