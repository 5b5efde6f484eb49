# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes certificates: the authorities themselves and what they sign. Nothing here touches a file."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import profiles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID, ObjectIdentifier

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class Names(t.NamedTuple):
    """Who a certificate is about: subject and subject alternative names."""

    common_name: str
    organizations: t.Sequence[str] = ()
    dns: t.Sequence[str] = ()
    ips: t.Sequence[str] = ()


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make an ECDSA P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return an unencrypted PKCS #8 PEM. For sealing and for the wire only, never for a log."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM text."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def certificate_sha256(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate's DER form, 64 hexadecimal digits."""
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def self_signed(
    key: ec.EllipticCurvePrivateKey, common_name: str, organization: str, now: datetime.datetime
) -> x509.Certificate:
    """Make an authority's own certificate.

    Args:
        key: the authority's key.
        common_name: its name.
        organization: names the site, so that two sites' authorities can be told apart.
        now: current time, with time zone.

    Returns:
        A certificate that may sign leaves only (path length 0), for 10 years.
    """
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - profiles.BACKDATE)
        .not_valid_after(now + profiles.AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True, encrypts=False), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(key, hashes.SHA256())
    )


def issue(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    public_key: PublicKey,
    names: Names,
    usages: t.Sequence[ObjectIdentifier],
    lifetime: datetime.timedelta,
    now: datetime.datetime,
) -> x509.Certificate:
    """Sign a leaf certificate.

    Args:
        authority: the issuing authority's certificate.
        authority_key: its key.
        public_key: whose certificate it is.
        names: subject and subject alternative names.
        usages: extended key usages.
        lifetime: from now on; cut at the authority's own end.
        now: current time, with time zone.

    Returns:
        The certificate.

    Raises:
        PkiError: when the authority itself has expired.
    """
    end = min(now + lifetime, authority.not_valid_after_utc)
    if end <= now:
        raise PkiError(
            f"The authority {authority.subject.rfc4514_string()} expired on "
            f"{authority.not_valid_after_utc:%Y-%m-%d}.",
            "Make new authorities: see docs/pki.md, renewing an authority.",
        )
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in names.organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, names.common_name))
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(authority.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - profiles.BACKDATE, authority.not_valid_before_utc))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            _key_usage(signs_certificates=False, encrypts=isinstance(public_key, rsa.RSAPublicKey)),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in names.ips]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _key_usage(*, signs_certificates: bool, encrypts: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        # Only RSA key exchange of TLS 1.2 needs it; an ECDSA key cannot encipher.
        key_encipherment=encrypts,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
