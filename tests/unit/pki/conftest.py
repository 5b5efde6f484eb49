# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, generate_key_file, open_store
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Digest = hashes.SHA224 | hashes.SHA256 | hashes.SHA512
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key file that all stores of the tests share."""
    return generate_key_file(tmp_path_factory.mktemp("key") / "pki.key")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> Store:
    """A complete store; tests must not change it."""
    made = open_store(tmp_path_factory.mktemp("store") / "pki", key_file)
    made.ensure_cas()
    return made


class RequestMaker(t.Protocol):
    """Makes a certificate request as a host would, or a mutated one."""

    def __call__(
        self,
        subject: t.Sequence[tuple[x509.ObjectIdentifier, str]] = ...,
        names: t.Sequence[x509.GeneralName] | None = ...,
        key: Key | None = ...,
        extensions: t.Sequence[x509.ExtensionType] = ...,
        digest: Digest | None = ...,
        attributes: t.Sequence[tuple[x509.ObjectIdentifier, bytes]] = ...,
    ) -> str: ...


@pytest.fixture(scope="session")
def make_request() -> RequestMaker:
    """Return the maker."""

    def make(
        subject: t.Sequence[tuple[x509.ObjectIdentifier, str]] = ((NameOID.COMMON_NAME, "az-1"),),
        names: t.Sequence[x509.GeneralName] | None = (x509.DNSName("az-1"),),
        key: Key | None = None,
        extensions: t.Sequence[x509.ExtensionType] = (),
        digest: Digest | None = None,
        attributes: t.Sequence[tuple[x509.ObjectIdentifier, bytes]] = (),
    ) -> str:
        builder = x509.CertificateSigningRequestBuilder().subject_name(
            x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        for oid, value in attributes:
            builder = builder.add_attribute(oid, value)
        request = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), digest or hashes.SHA256())
        return request.public_bytes(serialization.Encoding.PEM).decode()

    return make


@pytest.fixture
def now() -> datetime.datetime:
    """A fixed moment."""
    return datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
