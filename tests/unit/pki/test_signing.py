# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import ipaddress
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, Store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import Expectation
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import RequestMaker

EXPECT: Expectation = {
    "common_name": "az-1",
    "organizations": ["ironspan"],
    "dns": ["az-1", "localhost"],
    "ips": ["10.98.0.11", "::1"],
}
SUBJECT = [(NameOID.ORGANIZATION_NAME, "ironspan"), (NameOID.COMMON_NAME, "az-1")]
NAMES = [
    x509.DNSName("localhost"),
    x509.DNSName("az-1"),
    x509.IPAddress(ipaddress.ip_address("10.98.0.11")),
    x509.IPAddress(ipaddress.ip_address("::1")),
]
Change = dict[str, t.Any]


def test_expected_request_is_signed(store: Store, make_request: RequestMaker) -> None:
    made = x509.load_pem_x509_certificate(
        store.sign(make_request(SUBJECT, NAMES), "etcd-server", EXPECT).encode()
    )
    authority = x509.load_pem_x509_certificate(store.ca("etcd").certificate_pem.encode())
    made.verify_directly_issued_by(authority)
    lifetime = made.not_valid_after_utc - made.not_valid_before_utc
    assert lifetime.total_seconds() == 365 * 24 * 3600 + 5 * 60
    assert made.subject.rfc4514_string() == "CN=az-1,O=ironspan"
    assert set(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    assert set(made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == set(NAMES)
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    key_identifier = made.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    subject_identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert key_identifier == subject_identifier


@pytest.mark.parametrize("profile", ["etcd-client", "apiserver-etcd-client"])
def test_client_profiles_cannot_serve(store: Store, make_request: RequestMaker, profile: str) -> None:
    pem = store.sign(make_request(names=None), profile, {"common_name": "az-1"})
    made = x509.load_pem_x509_certificate(pem.encode())
    usages = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_serial_numbers_are_random(store: Store, make_request: RequestMaker) -> None:
    request = make_request(SUBJECT, NAMES)
    made = [store.sign(request, "etcd-server", EXPECT).encode() for _ in range(5)]
    serials = {x509.load_pem_x509_certificate(pem).serial_number for pem in made}
    assert len(serials) == 5
    assert max(serials).bit_length() > 100


MUTATIONS: list[tuple[str, Change, str]] = [
    ("another name", {"subject": [SUBJECT[0], (NameOID.COMMON_NAME, "az-2")]}, "common name found"),
    ("no name", {"subject": [SUBJECT[0]]}, "common name found"),
    ("two names", {"subject": [*SUBJECT, (NameOID.COMMON_NAME, "az-1")]}, "common name found"),
    ("name in other case", {"subject": [SUBJECT[0], (NameOID.COMMON_NAME, "AZ-1")]}, "common name found"),
    ("a group more", {"subject": [*SUBJECT, (NameOID.ORGANIZATION_NAME, "system:masters")]}, "organisations"),
    ("another group", {"subject": [(NameOID.ORGANIZATION_NAME, "x"), SUBJECT[1]]}, "organisations found"),
    ("no group", {"subject": [SUBJECT[1]]}, "organisations found"),
    ("a unit", {"subject": [*SUBJECT, (NameOID.ORGANIZATIONAL_UNIT_NAME, "x")]}, "its subject has 2.5.4.11"),
    ("no alternative names", {"names": None}, "subject alternative names found"),
    ("one name less", {"names": NAMES[:-1]}, "subject alternative names found"),
    ("one name more", {"names": [*NAMES, x509.DNSName("az-2")]}, "subject alternative names found"),
    ("a name twice", {"names": [*NAMES, x509.DNSName("az-1")]}, "subject alternative names found"),
    ("a wildcard", {"names": [*NAMES, x509.DNSName("*")]}, "subject alternative names found"),
    (
        "an address as name",
        {"names": [*NAMES[:2], x509.DNSName("10.98.0.11"), NAMES[3]]},
        "subject alternative names found",
    ),
    (
        "another address",
        {"names": [*NAMES[:2], x509.IPAddress(ipaddress.ip_address("10.98.0.12")), NAMES[3]]},
        "subject alternative names found",
    ),
    (
        "a network",
        {"names": [*NAMES, x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))]},
        "subject alternative names found",
    ),
    ("a mail address", {"names": [*NAMES, x509.RFC822Name("a@b")]}, "subject alternative names found"),
    (
        "a URI",
        {"names": [*NAMES, x509.UniformResourceIdentifier("spiffe://x")]},
        "subject alternative names found",
    ),
    (
        "be an authority",
        {"extensions": [x509.BasicConstraints(ca=True, path_length=None)]},
        "extension 2.5.29.19",
    ),
    (
        "a usage",
        {"extensions": [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])]},
        "extension 2.5.29.37",
    ),
    (
        "a challenge password",
        {"attributes": [(AttributeOID.CHALLENGE_PASSWORD, b"hunter2")]},
        "attribute 1.2.840.113549.1.9.7",
    ),
    ("P-384", {"key": ec.generate_private_key(ec.SECP384R1())}, "key found 'ecdsa-secp384r1'"),
    ("RSA 1024", {"key": rsa.generate_private_key(65537, 1024)}, "key found 'rsa-1024'"),
    ("RSA 3072", {"key": rsa.generate_private_key(65537, 3072)}, "key found 'rsa-3072'"),
    ("SHA-224", {"digest": hashes.SHA224()}, "signature digest found 'sha224'"),
]


@pytest.mark.parametrize(
    ("change", "message"), [(c, m) for _, c, m in MUTATIONS], ids=[n for n, _, _ in MUTATIONS]
)
def test_request_for_anything_else_is_refused(
    store: Store, make_request: RequestMaker, change: Change, message: str
) -> None:
    with pytest.raises(PkiError) as caught:
        store.sign(make_request(**{"subject": SUBJECT, "names": NAMES, **change}), "etcd-server", EXPECT)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.remedy


def test_all_differences_are_named_at_once(store: Store, make_request: RequestMaker) -> None:
    request = make_request(names=None, key=ec.generate_private_key(ec.SECP384R1()))
    with pytest.raises(PkiError) as caught:
        store.sign(request, "etcd-server", EXPECT)
    for part in ("key found", "organisations found", "subject alternative names found"):
        assert part in str(caught.value)


def test_expected_algorithm_is_exact(store: Store, make_request: RequestMaker) -> None:
    key = rsa.generate_private_key(65537, 2048)
    request = make_request(SUBJECT, NAMES, key=key)
    assert store.sign(request, "etcd-server", {**EXPECT, "algorithm": "rsa-2048"})
    with pytest.raises(PkiError, match="key found 'rsa-2048', wanted 'ecdsa-p256'"):
        store.sign(request, "etcd-server", {**EXPECT, "algorithm": "ecdsa-p256"})


def test_ed25519_is_refused(store: Store) -> None:
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "az-1")]))
        .sign(ed25519.Ed25519PrivateKey.generate(), None)
    )
    with pytest.raises(PkiError, match="key found"):
        store.sign(request.public_bytes(Encoding.PEM), "etcd-client", {"common_name": "az-1"})


def altered(position: int, change: int) -> str:
    """Return the module's request with one byte changed."""
    lines = REQUEST[0].splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    der[position] ^= change
    return f"{lines[0]}\n{base64.encodebytes(bytes(der)).decode()}{lines[-1]}\n"


@pytest.mark.parametrize("change", [1, 2, 3, 4, 7, 8, 255])
def test_every_byte_of_a_request_counts(store: Store, change: int) -> None:
    der = base64.b64decode("".join(REQUEST[0].splitlines()[1:-1]))
    for position in range(len(der)):
        with pytest.raises(PkiError):
            store.sign(altered(position, change), "etcd-server", EXPECT)


@settings(max_examples=150)
@given(data=st.data())
def test_no_altered_request_is_signed(store: Store, data: st.DataObject) -> None:
    """A change of any byte of the request either breaks it or its signature: nothing is signed."""
    der = base64.b64decode("".join(REQUEST[0].splitlines()[1:-1]))
    position = data.draw(st.integers(0, len(der) - 1))
    with pytest.raises(PkiError):
        store.sign(altered(position, data.draw(st.integers(1, 255))), "etcd-server", EXPECT)


REQUEST: list[str] = []


@pytest.fixture(autouse=True, scope="module")
def _one_request(make_request: RequestMaker) -> None:
    REQUEST.append(make_request(SUBJECT, NAMES))


@pytest.mark.parametrize(
    "text", ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
)
def test_what_is_no_request_is_refused(store: Store, text: str) -> None:
    with pytest.raises(PkiError, match="not a certificate request"):
        store.sign(text, "etcd-server", EXPECT)


def test_unknown_profile_names_those_there_are(store: Store, make_request: RequestMaker) -> None:
    with pytest.raises(PkiError, match=r"no certificate profile 'root'.*etcd-server, etcd-client"):
        store.sign(make_request(), "root", EXPECT)


def test_server_certificate_needs_a_name(store: Store, make_request: RequestMaker) -> None:
    with pytest.raises(PkiError, match="needs a DNS name or address"):
        store.sign(make_request(names=None), "etcd-server", {"common_name": "az-1"})


def test_request_of_the_real_openssl_and_its_chain(store: Store, tmp_path: Path) -> None:
    """What hosts do: openssl makes key and request; openssl then accepts the chain for its purposes."""
    configuration = tmp_path / "request.cnf"
    configuration.write_text(
        "[req]\nprompt=no\ndistinguished_name=dn\nreq_extensions=ext\n[dn]\nO=ironspan\nCN=az-1\n"
        "[ext]\nsubjectAltName=DNS:az-1,DNS:localhost,IP:10.98.0.11,IP:::1\n"
    )
    key, request = tmp_path / "key.pem", tmp_path / "request.pem"
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    _openssl("req", "-new", "-key", key, "-config", configuration, "-out", request)
    certificate, authority = tmp_path / "certificate.pem", tmp_path / "ca.pem"
    certificate.write_text(store.sign(request.read_text(), "etcd-server", EXPECT))
    authority.write_text(store.ca("etcd").certificate_pem)
    strict: list[str | Path] = ["verify", "-x509_strict", "-check_ss_sig", "-CAfile", authority]
    for purpose in ("sslserver", "sslclient"):
        _openssl(*strict, "-purpose", purpose, "-verify_hostname", "az-1", certificate)
    for name in ("kubernetes", "front-proxy"):
        authority.write_text(store.ca(name).certificate_pem)
        assert subprocess.run(["openssl", *strict, certificate], capture_output=True, check=False).returncode


@pytest.mark.parametrize("name", ["etcd", "kubernetes", "front-proxy"])
def test_authority(store: Store, name: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(store.ca(name).certificate_pem)
    _openssl("verify", "-x509_strict", "-check_ss_sig", "-CAfile", path, path)
    made = x509.load_pem_x509_certificate(path.read_bytes())
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(
        True, 0
    )
    usage = made.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign and usage.value.crl_sign and not usage.value.digital_signature
    assert store.ca(name).sha256 == made.fingerprint(hashes.SHA256()).hex()
    assert f"ironspan site {store.site_uid()}" in made.subject.rfc4514_string()


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
