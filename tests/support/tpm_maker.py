# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makers of TPMs: authorities that sign certificates of endorsement keys, as the TCG's profile has them."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.certificate import EK_USAGE
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

YEAR = datetime.timedelta(days=365)


def named(name: str) -> x509.Name:
    """Return a name with one part."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


class Maker:
    """An authority. Its certificate is signed by itself, or by another maker's.

    Args:
        name: its name.
        above: who signs its certificate, itself by default.
        age: how long ago its certificate, which is good for ten years, began.
        ca: whether its certificate says that it may sign others.
    """

    def __init__(
        self,
        name: str,
        above: Maker | None = None,
        age: datetime.timedelta = YEAR,
        *,
        ca: bool = True,
    ) -> None:
        self.name = named(name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        signer = above or self
        usage = x509.BasicConstraints(ca=ca, path_length=None)
        self.certificate = (
            self._builder(self.name, signer.name, self.key.public_key(), age, 10 * YEAR)
            .add_extension(usage, critical=True)
            .sign(signer.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def certify(
        self,
        key: t.Any,
        *,
        usages: tuple[x509.ObjectIdentifier, ...] | None = (EK_USAGE,),
        ca: bool = False,
        age: datetime.timedelta = YEAR,
    ) -> bytes:
        """Return a certificate of an endorsement key, in DER: without a subject, its TPM as another name.

        Args:
            key: the public key.
            usages: what the key is for; None leaves it unsaid.
            ca: whether the certificate says that the key may sign others.
            age: how long ago it began; it is good for five years.
        """
        model = x509.DirectoryName(named("a TPM"))
        builder = (
            self._builder(x509.Name([]), self.name, key, age, 5 * YEAR)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([model]), critical=True)
        )
        if usages is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    @staticmethod
    def _builder(
        subject: x509.Name, issuer: x509.Name, key: t.Any, age: datetime.timedelta, life: datetime.timedelta
    ) -> x509.CertificateBuilder:
        began = datetime.datetime.now(datetime.UTC) - age
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(began)
            .not_valid_after(began + life)
        )
