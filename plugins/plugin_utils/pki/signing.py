# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a store signs: requests of hosts, and short-lived certificates for the controller itself."""

from __future__ import annotations

import abc
import datetime
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates, profiles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.kubeconfig import (
    APPROVER,
    administrator,
    made_kubeconfig,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import (
    Expectation,
    checked_request,
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa


class KeyPair(t.NamedTuple):
    """A certificate with its key, both PEM, made on the controller for one use and never stored."""

    certificate_pem: str
    key_pem: str


class Signer(abc.ABC):
    """Signs with the authorities of a store.

    Args:
        clock: current time with time zone.
    """

    def __init__(self, clock: t.Callable[[], datetime.datetime]) -> None:
        self._clock = clock

    @abc.abstractmethod
    def _pair(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return the certificate of an authority that signs, and its key."""

    @abc.abstractmethod
    def _trusted(self, name: str) -> str:
        """Return the certificates to trust of an authority, PEM."""

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
        pair, trusted = self._pair("kubernetes"), self._trusted("kubernetes")
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


def _short(hours: float) -> datetime.timedelta:
    if not 0 < hours <= 1:
        raise PkiError(f"A certificate for the controller lives at most 1 hour, not {hours}.")
    return datetime.timedelta(hours=hours)
