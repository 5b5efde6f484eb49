# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates as they are found: what each one is, who signed it, when it ends."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.certificates import certificate_sha256
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import AUTHORITIES
from cryptography import x509
from cryptography.exceptions import InvalidSignature

AUTHORITY, LEAF = "authority", "leaf"
STORE = "PKI store"
SITE, KUBELET = "site.yml", "kubelet"
CLIENT_FIELD = "client-certificate-data"


class Purpose(t.NamedTuple):
    """What a file is for: in words, by which authority, and who replaces it before it ends."""

    words: str
    authority: str
    renewed_by: str = SITE


PURPOSES: Mapping[str, Purpose] = {
    "/etc/etcd/pki/server.crt": Purpose("etcd member: server, peer, client", "etcd"),
    "/etc/kubernetes/pki/apiserver-etcd-client.crt": Purpose("API server to etcd", "etcd"),
    "/etc/kubernetes/pki/apiserver.crt": Purpose("API server", "kubernetes"),
    "/etc/kubernetes/pki/apiserver-kubelet-client.crt": Purpose("API server to kubelets", "kubernetes"),
    "/etc/kubernetes/pki/front-proxy-client.crt": Purpose("API server to extensions", "front-proxy"),
    "/etc/kubernetes/pki/access-controller.crt": Purpose("requests for access", "kubernetes"),
    "/etc/kubernetes/pki/gpu-repair.crt": Purpose("repair of GPU nodes", "kubernetes"),
    "/etc/ironspan-ironic/web/server.crt": Purpose("API of Ironic", "kubernetes"),
    "/etc/kubernetes/admin.conf": Purpose("admin.conf", "kubernetes"),
    "/etc/kubernetes/super-admin.conf": Purpose("super-admin.conf", "kubernetes"),
    "/etc/kubernetes/controller-manager.conf": Purpose("controller manager", "kubernetes"),
    "/etc/kubernetes/scheduler.conf": Purpose("scheduler", "kubernetes"),
    "/etc/kubernetes/kubelet.conf": Purpose("kubelet.conf", "kubernetes", KUBELET),
    "/var/lib/kubelet/pki/kubelet-client-current.pem": Purpose("kubelet to API", "kubernetes", KUBELET),
    "/var/lib/kubelet/pki/kubelet-server-current.pem": Purpose("kubelet, serving", "kubernetes", KUBELET),
}
TRUSTED: Mapping[str, str] = {
    "/etc/etcd/pki/ca.crt": "etcd",
    "/etc/kubernetes/pki/etcd/ca.crt": "etcd",
    "/etc/kubernetes/pki/ca.crt": "kubernetes",
    "/etc/kubernetes/pki/signing-ca.crt": "kubernetes",
    "/etc/kubernetes/pki/front-proxy-ca.crt": "front-proxy",
    "/etc/haproxy/kubernetes-ca.crt": "kubernetes",
    "/etc/ironspan-ironic/ca.crt": "kubernetes",
}
"""Files of trusted authorities; so are the authorities in kubeconfigs, all of ``kubernetes``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One certificate in one place.

    Args:
        host: the host; ``STORE`` for the site's own authorities.
        path: the file.
        kind: ``AUTHORITY`` (trusted there) or ``LEAF``.
        what: what it is for, in words.
        authority: the authority it is, or should be of; "" when this version does not know the file.
        generation: of that authority (as itself, or as the one that signed it); 0 when it is another's.
        renewed_by: who replaces it.
        subject: common name.
        sha256: its fingerprint.
        not_after: when it ends.
    """

    host: str
    path: str
    kind: str
    what: str
    authority: str
    generation: int
    renewed_by: str
    subject: str
    sha256: str
    not_after: datetime.datetime

    def days_left(self, now: datetime.datetime) -> float:
        """Return the days until it ends, negative when it has."""
        return (self.not_after - now).total_seconds() / 86400

    def as_dict(self, now: datetime.datetime) -> dict[str, t.Any]:
        """Return it for machines."""
        return {
            **dataclasses.asdict(self),
            "not_after": f"{self.not_after:%Y-%m-%dT%H:%M:%SZ}",
            "days_left": round(self.days_left(now), 2),
        }


class Authorities:
    """The generations of a store's authorities, those that are trusted no more included.

    Args:
        store: the PKI store.
    """

    def __init__(self, store: Store) -> None:
        self._by_name = {name: store.authority_certificates(name) for name in AUTHORITIES}
        self._by_fingerprint = {
            certificate_sha256(certificate): (name, number)
            for name, certificates in self._by_name.items()
            for number, certificate in certificates.items()
        }

    def all(self) -> t.Iterator[tuple[str, int, x509.Certificate]]:
        """Yield name, generation and certificate of each."""
        for name, certificates in self._by_name.items():
            for number, certificate in certificates.items():
                yield name, number, certificate

    def generation(self, certificate: x509.Certificate) -> int:
        """Return which generation a certificate is, 0 for none of any authority."""
        return self._by_fingerprint.get(certificate_sha256(certificate), ("", 0))[1]

    def issuer(self, certificate: x509.Certificate) -> tuple[str, int]:
        """Return authority and generation that signed a certificate, proven by its signature."""
        for name, number, authority in self.all():
            if authority.subject == certificate.issuer:
                try:
                    certificate.verify_directly_issued_by(authority)
                except (ValueError, TypeError, InvalidSignature):
                    continue
                return name, number
        return "", 0


def of_host(host: str, entries: Iterable[Mapping[str, str]], authorities: Authorities) -> list[Found]:
    """Return what one host has; a block that is no certificate is left out.

    Args:
        host: its name.
        entries: path, field and pem of each.
        authorities: the site's.
    """
    found = []
    for entry in entries:
        certificate = _parsed(entry["pem"])
        if certificate is not None:
            found.append(_of_entry(host, entry, certificate, authorities))
    return found


def of_store(authorities: Authorities, trusted: Mapping[str, Sequence[int]]) -> list[Found]:
    """Return the authorities that are trusted, as the store has them."""
    return [
        Found(
            STORE,
            f"authorities/{name}",
            AUTHORITY,
            f"authority {name}",
            name,
            number,
            "ca_rotate.yml",
            _common_name(certificate),
            certificate_sha256(certificate),
            certificate.not_valid_after_utc,
        )
        for name, number, certificate in authorities.all()
        if number in trusted[name]
    ]


def _of_entry(
    host: str, entry: Mapping[str, str], certificate: x509.Certificate, authorities: Authorities
) -> Found:
    path, field = entry["path"], entry["field"]
    in_kubeconfig = bool(field) and field != CLIENT_FIELD
    if path in TRUSTED or in_kubeconfig:
        name = TRUSTED.get(path, "kubernetes")
        kind, what = AUTHORITY, f"authority {name}, as hosts trust it"
        generation, renewed_by = authorities.generation(certificate), SITE
    else:
        purpose = PURPOSES.get(path, Purpose(path, "", "unknown"))
        kind, what, name, renewed_by = LEAF, purpose.words, purpose.authority, purpose.renewed_by
        signer, generation = authorities.issuer(certificate)
        generation = generation if signer == name or not name else 0
    return Found(
        host,
        path,
        kind,
        what,
        name,
        generation,
        renewed_by,
        _common_name(certificate),
        certificate_sha256(certificate),
        certificate.not_valid_after_utc,
    )


@functools.lru_cache(4096)
def _parsed(pem: str) -> x509.Certificate | None:
    # Authorities are the same on every host.
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except (ValueError, TypeError):
        return None


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string()
