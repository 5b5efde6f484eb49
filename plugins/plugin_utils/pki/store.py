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
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder, secret_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.kubeconfig import admin_kubeconfig
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import (
    UNREADABLE,
    Expectation,
    checked_request,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

_SERVICE_ACCOUNT_KEY = "service-account-key"
_SERVICE_ACCOUNT_PUBLIC = "public/service-account.pub"
_FROM_BACKUP = "from a backup."


class CertificateAuthority(t.NamedTuple):
    """One authority. ``key_pem`` opens the sealed key when it is called, not before."""

    name: str
    certificate_pem: str
    sha256: str
    key_pem: t.Callable[[], str]


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
            made += [name for name in profiles.AUTHORITIES if self._ensure_authority(name)]
            if self._ensure_service_account():
                made.append("service-account")
        return made

    def _ensure_authority(self, name: str) -> bool:
        has_key = self._folder.has(secret_file(f"{name}-key"))
        if self._folder.has(_certificate_file(name)):
            if not has_key:
                raise PkiError(
                    f"The store has the certificate of the authority {name} but not its key.",
                    f"Restore {self.path}/{secret_file(f'{name}-key')} {_FROM_BACKUP}",
                )
            self._authority_pair(name)
            return False
        # The key first: a kill between the two leaves a key that nothing was signed with, and the next run
        # goes on from it.
        if has_key:
            key = _elliptic(self._folder.unseal(f"{name}-key"), name)
        else:
            key = certificates.new_key()
            self._folder.seal(f"{name}-key", certificates.private_pem(key))
        made = certificates.self_signed(
            key, profiles.AUTHORITIES[name], f"ironspan site {self.site_uid()}", self._clock()
        )
        self._folder.publish(_certificate_file(name), certificates.certificate_pem(made).encode())
        return True

    def _ensure_service_account(self) -> bool:
        has_key = self._folder.has(secret_file(_SERVICE_ACCOUNT_KEY))
        has_public = self._folder.has(_SERVICE_ACCOUNT_PUBLIC)
        if has_public and not has_key:
            raise PkiError(
                "The store has the public service account key but not the private one.",
                f"Restore {self.path}/{secret_file(_SERVICE_ACCOUNT_KEY)} {_FROM_BACKUP}",
            )
        if not has_key:
            # RSA 2048 is what kubeadm makes, and tokens are signed RS256, which every verifier reads.
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            self._folder.seal(_SERVICE_ACCOUNT_KEY, certificates.private_pem(key))
        loaded = serialization.load_pem_private_key(self._folder.unseal(_SERVICE_ACCOUNT_KEY), None)
        public = loaded.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if not has_public:
            self._folder.publish(_SERVICE_ACCOUNT_PUBLIC, public)
            return True
        if self._folder.public(_SERVICE_ACCOUNT_PUBLIC) != public:
            raise PkiError(
                f"{self.path}/{_SERVICE_ACCOUNT_PUBLIC} does not belong to the store's private key.",
                f"Restore it {_FROM_BACKUP}",
            )
        return False

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
        certificate = self._certificate(name)
        return CertificateAuthority(
            name,
            certificates.certificate_pem(certificate),
            certificates.certificate_sha256(certificate),
            lambda: certificates.private_pem(self._authority_pair(name)[1]).decode(),
        )

    def service_account_key(self) -> str:
        """Return the private key that signs service account tokens, PEM."""
        return self._folder.unseal(_SERVICE_ACCOUNT_KEY).decode()

    def service_account_public_key(self) -> str:
        """Return the public half of the service account key, PEM."""
        return self._folder.public(_SERVICE_ACCOUNT_PUBLIC).decode()

    def control_plane_secrets(self) -> dict[str, str]:
        """Return the private keys a control plane host needs, by the names documents use for them."""
        return {
            "kubernetes-ca-key": self.ca("kubernetes").key_pem(),
            "front-proxy-ca-key": self.ca("front-proxy").key_pem(),
            "service-account-key": self.service_account_key(),
        }

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
        certificate, key = self._authority_pair("kubernetes")
        return admin_kubeconfig(
            certificate, key, endpoint, address, _short(hours), self._clock(), break_glass=break_glass
        )

    def _issue(
        self,
        profile: profiles.Profile,
        public_key: certificates.PublicKey,
        names: certificates.Names,
        lifetime: datetime.timedelta,
    ) -> str:
        authority, key = self._authority_pair(profile.authority)
        return certificates.certificate_pem(
            certificates.issue(authority, key, public_key, names, profile.usages, lifetime, self._clock())
        )

    def _certificate(self, name: str) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(self._folder.public(_certificate_file(name)))
        except UNREADABLE as error:
            raise PkiError(
                f"{self.path}/{_certificate_file(name)} is damaged.", "Restore it from a backup."
            ) from error

    def _authority_pair(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        certificate = self._certificate(name)
        key = _elliptic(self._folder.unseal(f"{name}-key"), name)
        if key.public_key() != certificate.public_key():
            # Public files are in clear: without this a swapped certificate would be handed to every host.
            raise PkiError(
                f"The certificate of the authority {name} does not belong to its key.",
                f"Restore {self.path}/{_certificate_file(name)} {_FROM_BACKUP}",
            )
        return certificate, key


def _certificate_file(name: str) -> str:
    return f"authorities/{name}.crt"


def _elliptic(pem: bytes, name: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"The key of the authority {name} is not an elliptic curve key.")
    return key


def _short(hours: float) -> datetime.timedelta:
    if not 0 < hours <= 1:
        raise PkiError(f"A certificate for the controller lives at most 1 hour, not {hours}.")
    return datetime.timedelta(hours=hours)
