# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The emulated Azure's own certificate authority and the certificate of its endpoints."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ironspan.lab import files
from ironspan.lab.azure.config import authority, server

#: As long as a machine may keep a lab.
_DAYS = 365


def ensure(folder: Path, names: Sequence[str], addresses: Sequence[str]) -> None:
    """Make authority and certificate unless they are there; the authority's key is not kept."""
    certificate, key_path = server(folder)
    if certificate.exists():
        return
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    ends = begins + datetime.timedelta(days=_DAYS)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab Azure")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        x509.CertificateBuilder(ca_name, ca_name, ca_key.public_key(), 1, begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
        )
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    leaf = (
        x509.CertificateBuilder(ca_name, subject, key.public_key(), x509.random_serial_number(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    files.write_atomic(authority(folder), ca.public_bytes(encoding))
    pem = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files.write_atomic(key_path, pem, 0o600)
    # Last: its presence says that the others are there.
    files.write_atomic(certificate, leaf.public_bytes(encoding))
