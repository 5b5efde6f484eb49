# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates as a cluster makes them, for tests of the kinds that look after them."""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Spelt as Python 3.9 knows it: hosts have it, and these tests run there too.
UTC = datetime.timezone.utc  # noqa: UP017
NOW = datetime.datetime.now(UTC)


class Authority:
    """An authority with key identifiers, as the PKI store makes them."""

    def __init__(self, name: str = "kubernetes") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        certificate = (
            x509.CertificateBuilder(
                self.subject, self.subject, self.key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(NOW - datetime.timedelta(days=1))
            .not_valid_after(NOW + datetime.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(self.identifier, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.sha256 = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()

    def sign(
        self,
        key: ec.EllipticCurvePublicKey,
        common_name: str,
        organizations: Sequence[str] = (),
        names: Sequence[x509.GeneralName] = (),
        days: float = 365,
    ) -> str:
        """Return a certificate, PEM."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        builder = (
            x509.CertificateBuilder(self.subject, x509.Name(subject), key, x509.random_serial_number())
            .not_valid_before(NOW - datetime.timedelta(days=400))
            .not_valid_after(NOW + datetime.timedelta(days=days))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self.identifier),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a key as a kubelet makes it."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a key as kubelet and kubeadm write it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def kubeconfig(authority: str, certificate: str, key: str) -> str:
    """Return a kubeconfig as kubeadm writes it."""

    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    return (
        f"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {data(authority)}\n"
        "    server: https://10.98.0.11:6443\n  name: lab\ncontexts:\n- context:\n    cluster: lab\n"
        "    user: admin\n  name: admin@lab\ncurrent-context: admin@lab\nkind: Config\n"
        "users:\n- name: admin\n"
        f"  user:\n    client-certificate-data: {data(certificate)}\n    client-key-data: {data(key)}\n"
    )
