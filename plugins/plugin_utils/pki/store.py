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
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_keys import EncryptionKeys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    ROTATABLE,
    SERVICE_ACCOUNT,
    Generations,
    ended,
    moved,
    parsed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.kubeconfig import (
    APPROVER,
    administrator,
    made_kubeconfig,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.material import (
    Material,
    certificate_file,
    secret_name,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import (
    Expectation,
    checked_request,
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa


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


class KeyPair(t.NamedTuple):
    """A certificate with its key, both PEM, made on the controller for one use and never stored."""

    certificate_pem: str
    key_pem: str


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


class Store:
    """The site's authorities and what only they can do."""

    def __init__(self, folder: Folder, clock: t.Callable[[], datetime.datetime]) -> None:
        self.path = folder.path
        self._folder = folder
        self._clock = clock
        self._material = Material(folder, clock)
        self.backup_keys = BackupKeys(folder)
        self.encryption = EncryptionKeys(folder, clock)

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
            made = ["store"] if new else []
            for name in (*profiles.AUTHORITIES, SERVICE_ACCOUNT):
                results = [self._material.ensure(name, number) for number in self.generations(name).trusted]
                made += [name] if any(results) else []
            made += ["backup-key"] if self.backup_keys.ensure() else []
            self.encryption.prove()
        return made

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
        """Encrypt all secrets with the key in another file, which opens the store from then on."""
        self.ensure_cas()
        self._folder.change_key(load_key(key_source))

    # -- changing an authority ---------------------------------------------------------------------

    def generations(self, name: str) -> Generations:
        """Return which generation signs and which are trusted, of an authority or the service account key."""
        try:
            return parsed(self._folder.header().get("generations", {}).get(name))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PkiError(f"{self.path}/store.json is damaged.", "Restore it from a backup.") from error

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
            state = moved(name, self.generations(name), move, now)
            for number in state.trusted:
                self._material.ensure(name, number)
            self._folder.change_generations(name, state.as_dict())
        return state

    def end_stage(self, name: str) -> Generations:
        """End the stage ``drop``: all hosts have followed. The keys of dropped generations are deleted."""
        with self._folder.writing():
            state = ended(self.generations(name))
            self._folder.change_generations(name, state.as_dict())
            for number in range(1, max(state.trusted) + 2):
                if not state.stage and number not in state.trusted:
                    self._material.remove(name, number, whole=number > state.signing)
        return state

    # -- signing -----------------------------------------------------------------------------------

    def sign(self, csr_pem: str | bytes, profile: str, expect: Expectation) -> str:
        """Sign a host's certificate request.

        Args:
            csr_pem: the request.
            profile: "etcd-server", "etcd-client" or "apiserver-etcd-client".
            expect: what the site expects it to ask for: common_name, organizations, dns, ips, algorithm.

        Returns:
            The certificate as PEM, without its authority (which hosts have already).

        Raises:
            PkiError: the request asks for anything else than expected, or the store is not usable.
        """
        chosen = profiles.profile(profile)
        if chosen.needs_names and not (expect.get("dns") or expect.get("ips")):
            raise PkiError(f"A certificate of profile {profile} needs a DNS name or address.")
        request = checked_request(csr_pem, expect)
        names = certificates.Names(
            expect["common_name"],
            expect.get("organizations", ()),
            expect.get("dns", ()),
            expect.get("ips", ()),
        )
        public_key = request.public_key()
        if not isinstance(public_key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
            raise PkiError("The request's key is of a kind that is not signed.")
        return self._issue(chosen, public_key, names, chosen.lifetime)

    def client_pair(self, profile: str, common_name: str, hours: float = 1) -> KeyPair:
        """Make a short-lived client certificate for the controller's own use, key in memory only.

        Args:
            profile: "etcd-client".
            common_name: who the server's log shall see.
            hours: lifetime, at most 1.
        """
        chosen = profiles.profile(profile)
        key = certificates.new_key()
        lifetime = _short(hours)
        certificate = self._issue(chosen, key.public_key(), certificates.Names(common_name), lifetime)
        return KeyPair(certificate, certificates.private_pem(key).decode())

    def admin_kubeconfig(
        self, endpoint: str, hours: float = 1, address: str = "", break_glass: bool = False
    ) -> dict[str, t.Any]:
        """Return a kubeconfig with a client certificate made for it; see kubeconfig.py.

        Args:
            endpoint: HOST:PORT of the API as its certificate names it.
            hours: lifetime of the certificate, at most 1.
            address: the address to dial when the controller may not resolve the endpoint's name.
            break_glass: be in system:masters, which RBAC cannot revoke, not in kubeadm:cluster-admins.
        """
        return self._kubeconfig(endpoint, hours, address, administrator(break_glass=break_glass))

    def approver_kubeconfig(self, endpoint: str, address: str = "") -> dict[str, t.Any]:
        """Return a kubeconfig that may decide about kubelets' certificates and nothing else."""
        return self._kubeconfig(endpoint, 0.25, address, APPROVER)

    def _kubeconfig(
        self, endpoint: str, hours: float, address: str, names: certificates.Names
    ) -> dict[str, t.Any]:
        pair, trusted = self._pair("kubernetes"), self.ca("kubernetes").certificate_pem
        return made_kubeconfig(*pair, trusted, endpoint, address, _short(hours), self._clock(), names)

    def _issue(
        self,
        profile: profiles.Profile,
        public_key: certificates.PublicKey,
        names: certificates.Names,
        lifetime: datetime.timedelta,
    ) -> str:
        authority, key = self._pair(profile.authority)
        return certificates.certificate_pem(
            certificates.issue(authority, key, public_key, names, profile.usages, lifetime, self._clock())
        )

    def _pair(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        return self._material.pair(name, self.generations(name).signing)


def _short(hours: float) -> datetime.timedelta:
    if not 0 < hours <= 1:
        raise PkiError(f"A certificate for the controller lives at most 1 hour, not {hours}.")
    return datetime.timedelta(hours=hours)
