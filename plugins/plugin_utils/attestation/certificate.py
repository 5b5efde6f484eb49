# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates that makers put into TPMs: whether an authority that the site trusts vouches for such a key.

Rules are those of the TCG EK Credential Profile. The authority that has signed is trusted as the site gives
it, whoever has signed that one: makers' roots sign other things than TPMs too.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import UNREADABLE
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

VARIABLE = "node_attestation_ek_authorities"
EK_USAGE = x509.ObjectIdentifier("2.23.133.8.1")
"""tcg-kp-EKCertificate: the key is a TPM's endorsement key."""


def authorities_in(texts: Sequence[str]) -> list[x509.Certificate]:
    """Return the authorities of PEM bundles.

    Args:
        texts: one or more certificates in PEM each.

    Raises:
        AttestationError: one has none, or something that may not sign certificates.
    """
    found = []
    for text in texts:
        try:
            bundle = x509.load_pem_x509_certificates(text.encode())
            wrong = [_name(entry.subject) for entry in bundle if not _may_sign(entry)]
        except UNREADABLE as error:
            raise AttestationError(
                f"has no certificate in PEM: {error}", "write the text of the file that the maker publishes"
            ) from None
        if wrong:
            raise AttestationError(
                f"has {wrong[0]}, which is no authority",
                "write the certificate of who signs the TPMs' certificates",
            )
        found += bundle
    return found


def insist_on_certificate(certificate: bytes, endorsement: str, texts: Sequence[str]) -> None:
    """Insist that one of the site's authorities vouches for a TPM.

    Args:
        certificate: as it is in the TPM, which may have more room than it needs; empty for none.
        endorsement: SHA-256 of the endorsement key that the TPM has proved to have, in hexadecimal digits.
        texts: the site's authorities in PEM.

    Raises:
        AttestationError: none does.
    """
    if not certificate:
        raise AttestationError(
            "no certificate of its endorsement key is recorded of the host's TPM",
            "accept it again if it was accepted by an earlier release; if its maker gave it none, take the "
            f"host out of {VARIABLE}",
        )
    try:
        found = x509.load_der_x509_certificate(_trimmed(certificate))
        key = found.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        is_authority, usages, issuer = _may_sign(found), _usages(found), _name(found.issuer)
    except UNREADABLE as error:
        raise AttestationError(f"the certificate in the host's TPM cannot be read: {error}") from None
    if hashlib.sha256(key).hexdigest() != endorsement:
        raise AttestationError("the certificate in the host's TPM is of another key than its endorsement key")
    if is_authority or (usages is not None and EK_USAGE not in usages):
        raise AttestationError("the certificate in the host's TPM is not one of an endorsement key")
    signers = [entry for entry in authorities_in(texts) if _signed_by(found, entry)]
    if not signers:
        raise AttestationError(
            f"the certificate in the host's TPM is signed by {issuer}, and none of {VARIABLE} has signed it",
            f"if that is the maker's authority, add its certificate to {VARIABLE}",
        )
    if not _is_valid(found):
        raise AttestationError(f"the certificate in the host's TPM {_life(found)}")
    if not any(map(_is_valid, signers)):
        raise AttestationError(f"the authority {issuer} of {VARIABLE} {_life(signers[0])}")


def _trimmed(certificate: bytes) -> bytes:
    """Return a certificate without what follows its end: makers fill the TPM's space up."""
    if len(certificate) > 4 and certificate[:2] == b"\x30\x82":
        return certificate[: 4 + int.from_bytes(certificate[2:4], "big")]
    return certificate


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _is_valid(certificate: x509.Certificate) -> bool:
    now = datetime.datetime.now(datetime.UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _life(certificate: x509.Certificate) -> str:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return f"is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier] | None:
    """Return what the key is for, None where that is not said."""
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return None


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _name(name: x509.Name) -> str:
    """Return a name as people write it, in one printable line."""
    text = name.rfc4514_string()[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "somebody without a name"
