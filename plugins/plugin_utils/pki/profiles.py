# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What each kind of certificate may be used for. A host asks for names; the uses are decided here."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

AUTHORITY_LIFETIME = datetime.timedelta(hours=87600)
"""10 years, the default caCertificateValidityPeriod of kubeadm.k8s.io/v1beta4."""
LEAF_LIFETIME = datetime.timedelta(hours=8760)
"""1 year, the default certificateValidityPeriod of kubeadm.k8s.io/v1beta4; converge renews 30 days before."""
BACKDATE = datetime.timedelta(minutes=5)
"""A host's clock may be behind the controller's by this much (client-go backdates by the same 5 minutes)."""
AUTHORITIES: t.Mapping[str, str] = {
    "etcd": "etcd-ca",
    "kubernetes": "kubernetes",
    "front-proxy": "front-proxy-ca",
}
"""Name in the store -> common name; the common names are kubeadm's."""
READ_BY_KUBEADM = ("kubernetes", "front-proxy")
"""Of a file with several certificates kubeadm takes the first for the one it has the key of (kubeadm 1.36,
util/pkiutil). Members of etcd restart when their file changes, so there the order never does."""


JOIN_LIFETIME = datetime.timedelta(hours=1)
"""How long a host may take from its turn in a run until its kubelet has a certificate of its own."""
JOINING_GROUP = "ironspan:joining"
"""An organisation of certificates that hosts join with, and so a group of whoever shows one. It may do
nothing of its own; it tells a kubelet's first request from a renewal, in the API and in the audit log."""


class Profile(t.NamedTuple):
    """What a signed certificate may be used for.

    ``needs_names`` tells that clients check its subject alternative names, so it must have at least one.
    """

    authority: str
    usages: tuple[ObjectIdentifier, ...]
    lifetime: datetime.timedelta = LEAF_LIFETIME
    needs_names: bool = False


PROFILES: t.Mapping[str, Profile] = {
    # A member is a server to clients and both to its peers; etcd also dials its own client port with it.
    "etcd-server": Profile(
        "etcd", (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH), needs_names=True
    ),
    "etcd-client": Profile("etcd", (ExtendedKeyUsageOID.CLIENT_AUTH,)),
    "apiserver-etcd-client": Profile("etcd", (ExtendedKeyUsageOID.CLIENT_AUTH,)),
    # Only for a kubelet that has joined and cannot, or must not wait to, renew its certificate by itself.
    "kubelet-client": Profile("kubernetes", (ExtendedKeyUsageOID.CLIENT_AUTH,)),
    # What a host asks for its kubelet's first certificate with, as the node it is and no other.
    "node-join": Profile("kubernetes", (ExtendedKeyUsageOID.CLIENT_AUTH,), JOIN_LIFETIME),
    # Of the program on control planes that grants requests for access.
    "access-controller": Profile("kubernetes", (ExtendedKeyUsageOID.CLIENT_AUTH,)),
    # Of the program on control planes that repairs GPU nodes.
    "gpu-repair": Profile("kubernetes", (ExtendedKeyUsageOID.CLIENT_AUTH,)),
    # Of the API of the site's own Ironic, and of images and virtual media where they have TLS.
    "ironic-server": Profile("kubernetes", (ExtendedKeyUsageOID.SERVER_AUTH,), needs_names=True),
    # Of the program that takes alerts.
    "events-server": Profile("kubernetes", (ExtendedKeyUsageOID.SERVER_AUTH,), needs_names=True),
    "kubelet-serving": Profile("kubernetes", (ExtendedKeyUsageOID.SERVER_AUTH,), needs_names=True),
}


def profile(name: str) -> Profile:
    """Return the profile of that name, or raise PkiError naming those there are."""
    try:
        return PROFILES[name]
    except KeyError as error:
        raise PkiError(
            f"There is no certificate profile {name!r}.", f"Use one of: {', '.join(PROFILES)}."
        ) from error
