# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Compares a certificate request with what the site expects of it. Everything not expected is refused."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, NameOID

ALGORITHMS = ("ecdsa-p256", "rsa-2048")
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What ``cryptography`` raises for malformed requests and certificates."""


class Expectation(t.TypedDict, total=False):
    """What a request must ask for, exactly. Left out means none; ``algorithm`` left out means any of ours."""

    common_name: str
    organizations: t.Sequence[str]
    dns: t.Sequence[str]
    ips: t.Sequence[str]
    algorithm: str


def checked_request(csr_pem: str | bytes, expect: Expectation) -> x509.CertificateSigningRequest:
    """Parse a request and check all it says.

    Args:
        csr_pem: the request, PEM.
        expect: what it must ask for.

    Returns:
        The parsed request.

    Raises:
        PkiError: it is no request, its signature is wrong, or it asks for something else; names each
            difference.
    """
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode() if isinstance(csr_pem, str) else csr_pem)
        differences = list(_differences(request, expect))
    except UNREADABLE as error:
        raise PkiError("This is not a certificate request that can be read.", _REMEDY) from error
    if differences:
        raise PkiError(
            f"The request of {expect.get('common_name', '')!r} is refused: {'; '.join(differences)}.",
            _REMEDY,
        )
    return request


def checked_key(csr_pem: str | bytes) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
    """Return the key of a request whose names and extensions do not matter: nothing else is taken from it.

    Args:
        csr_pem: the request, PEM.

    Raises:
        PkiError: it is no request, its signature is wrong, or its key is of another kind.
    """
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode() if isinstance(csr_pem, str) else csr_pem)
        key, differences = request.public_key(), list(_key_differences(request, {}))
    except UNREADABLE as error:
        raise PkiError("This is not a certificate request that can be read.") from error
    if differences or not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise PkiError(f"The request is refused: {'; '.join(differences)}.")
    return key


_REMEDY = "Remove the key on that host and converge again; if this comes back, do not trust the host."


def _differences(request: x509.CertificateSigningRequest, expect: Expectation) -> t.Iterator[str]:
    yield from _key_differences(request, expect)
    yield from _subject_differences(request, expect)
    names = _alternative_names(request)
    expected = [f"DNS:{name}" for name in expect.get("dns", ())]
    expected += [_ip(address) for address in expect.get("ips", ())]
    if sorted(names) != sorted(expected):
        yield _difference("subject alternative names", sorted(names), sorted(expected))
    for extension in request.extensions:
        if extension.oid != ExtensionOID.SUBJECT_ALTERNATIVE_NAME:
            yield f"it asks for the extension {extension.oid.dotted_string}, wanted none but names"
    for attribute in request.attributes:
        if attribute.oid.dotted_string != _EXTENSION_REQUEST:
            yield f"it carries the attribute {attribute.oid.dotted_string}, wanted none"


_EXTENSION_REQUEST = "1.2.840.113549.1.9.14"


def _key_differences(request: x509.CertificateSigningRequest, expect: Expectation) -> t.Iterator[str]:
    wanted = expect.get("algorithm")
    found = key_algorithm(request.public_key())
    if found not in ((wanted,) if wanted else ALGORITHMS):
        yield _difference("key", found, wanted or " or ".join(ALGORITHMS))
    try:
        valid = request.is_signature_valid
        digest = request.signature_hash_algorithm
    except (InvalidSignature, UnsupportedAlgorithm):
        valid, digest = False, None
    if valid and request.public_bytes(Encoding.DER)[-len(request.signature) - 1]:
        # The signature is a bit string at the very end, after a count of unused bits, which the verification
        # does not look at: it is the one byte that could be another without anyone noticing.
        yield "its signature is not encoded as DER wants it"
    if not valid:
        yield "its signature is wrong, so the sender does not hold the key"
    elif digest is None or digest.name not in ("sha256", "sha384", "sha512"):
        yield _difference("signature digest", digest.name if digest else "none", "sha256 or longer")


def _subject_differences(request: x509.CertificateSigningRequest, expect: Expectation) -> t.Iterator[str]:
    found: dict[str, list[str]] = {}
    for attribute in request.subject:
        found.setdefault(attribute.oid.dotted_string, []).append(str(attribute.value))
    names = found.pop(NameOID.COMMON_NAME.dotted_string, [])
    if names != [expect.get("common_name", "")]:
        yield _difference("common name", names, [expect.get("common_name", "")])
    organizations = sorted(found.pop(NameOID.ORGANIZATION_NAME.dotted_string, []))
    # The organisation of a client certificate is its group in Kubernetes: one more is a privilege more.
    if organizations != sorted(expect.get("organizations", ())):
        yield _difference("organisations", organizations, sorted(expect.get("organizations", ())))
    for oid, values in found.items():
        yield f"its subject has {oid} = {values!r}, wanted none"


def _alternative_names(request: x509.CertificateSigningRequest) -> list[str]:
    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    names = []
    for name in extension.value:
        if isinstance(name, x509.DNSName):
            names.append(f"DNS:{name.value}")
        elif isinstance(name, x509.IPAddress):
            names.append(_ip(str(name.value)))
        else:
            names.append(f"{type(name).__name__}:{name.value}")
    return names


def _ip(text: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(text)}"
    except ValueError:
        return f"IP:{text}"


def _difference(what: str, found: object, wanted: object) -> str:
    return f"{what} found {found!r}, wanted {wanted!r}"


def key_algorithm(key: object) -> str:
    """Return "ecdsa-p256", "rsa-2048" or another short description of a public key."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "ecdsa-p256" if isinstance(key.curve, ec.SECP256R1) else f"ecdsa-{key.curve.name}"
    if isinstance(key, rsa.RSAPublicKey):
        return f"rsa-{key.key_size}"
    return type(key).__name__
