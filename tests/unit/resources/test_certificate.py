# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``certificate``, with the real openssl on the host's side and an authority made for the test."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import key_and_csr
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.certificate import (
    KIND,
    normal_name,
    parse_date,
    parse_description,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Pending, ResourceError
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

KEY, PATH = "/etc/etcd/pki/server.key", "/etc/etcd/pki/server.crt"
CSR: dict[str, Any] = {
    "common_name": "az-1",
    "organizations": ["etcd", "Acme: two words"],
    "dns": ["az-1", "localhost"],
    "ips": ["10.98.0.11", "fd00::1"],
}
# Spelt as Python 3.9 knows it: hosts have it, and these tests run there too.
UTC = datetime.timezone.utc  # noqa: UP017
NOW = datetime.datetime.now(UTC)


class Authority:
    """A certificate authority that signs whatever it is asked."""

    def __init__(self, name: str = "etcd") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            x509.CertificateBuilder(subject, subject, self.key.public_key(), x509.random_serial_number())
            .not_valid_before(NOW - datetime.timedelta(days=1))
            .not_valid_after(NOW + datetime.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()
        self.sha256 = hashlib.sha256(self.certificate.public_bytes(Encoding.DER)).hexdigest()

    def sign(self, csr_pem: str, days: float = 365, **changes: Any) -> str:
        """Sign a request as it is, but for some changes (common_name)."""
        csr = x509.load_pem_x509_csr(csr_pem.encode())
        subject = csr.subject
        if "common_name" in changes:
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, changes["common_name"])])
        builder = (
            x509.CertificateBuilder(
                self.certificate.subject, subject, csr.public_key(), x509.random_serial_number()
            )
            .not_valid_before(NOW - datetime.timedelta(days=1000))
            .not_valid_after(NOW + datetime.timedelta(days=days))
        )
        for extension in csr.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


AUTHORITY = Authority()


def spec(**values: Any) -> dict[str, Any]:
    given_ = {"id": "etcd/server", "path": PATH, "key": "etcd/key", "profile": "etcd-server"}
    return filled(KIND, **{**given_, "issuer_sha256": AUTHORITY.sha256, **values})


def key_spec(**values: Any) -> dict[str, Any]:
    return filled(key_and_csr.KIND, **{"id": "etcd/key", "key_path": KEY, "csr": CSR, **values})


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    converge(key_and_csr.KIND, key_spec(), host)
    return host


def request(host: FakeHost, certificate: dict[str, Any] | None = None) -> str:
    """Return the request that a comparison offers."""
    host._certificates = {}
    with pytest.raises(Pending, match="certificate:etcd/server"):
        KIND.compare(certificate or spec(), host)
    return host.csrs["etcd/server"]


def issue(host: FakeHost, authority: Authority = AUTHORITY, days: float = 365, with_ca: bool = False) -> str:
    """Let the host ask, sign, and carry the certificate to it."""
    pem = authority.sign(request(host), days) + (authority.pem if with_ca else "")
    host._certificates = {"etcd/server": pem}
    return pem


def reason(host: FakeHost, **values: Any) -> str | None:
    """Return why the certificate on the host does not do, None if it does."""
    host._certificates = {"etcd/server": "not looked at"}
    change = KIND.compare(spec(**values), host)
    return change.reason if change else None


def test_asks_installs_and_is_content(host: FakeHost) -> None:
    pem = issue(host)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert (change.action, change.before) == ("create", {"certificate": None})
    assert change.after["names"] == ["dns:az-1", "dns:localhost", "ip:10.98.0.11", "ip:fd00::1"]
    assert host.text(PATH) == pem
    assert PATH in host.backups


def test_nothing_to_do_costs_no_program(host: FakeHost) -> None:
    issue(host)
    converge(KIND, spec(), host)
    host.program("openssl", "exit 1")
    assert KIND.compare(spec(), host) is None
    assert host.calls() == []


def test_without_a_key_there_is_no_request_yet(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    assert key_and_csr.KIND.compare(key_spec(), host) is not None
    with pytest.raises(Pending):
        KIND.compare(spec(), host)
    assert host.csrs == {}


def test_a_key_that_is_not_in_the_document(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="names the key etcd/key"):
        KIND.compare(spec(), FakeHost(tmp_path))


def test_a_copied_file_is_recognised_by_its_content(host: FakeHost) -> None:
    pem = issue(host)
    converge(KIND, spec(), host)
    host.put(PATH, pem)
    assert reason(host) is None


@pytest.mark.parametrize(
    ("days", "renew_before_days", "expected"),
    [(365, 30, None), (31, 30, None), (29, 30, "expires soon"), (29, 20, None), (-1, 30, "expired")],
)
def test_renewal(host: FakeHost, days: float, renew_before_days: int, expected: str | None) -> None:
    host.put("/etc/etcd/pki/ca.crt", AUTHORITY.pem)
    host.put(PATH, AUTHORITY.sign(request(host), days))
    assert reason(host, renew_before_days=renew_before_days) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"common_name": "az-2"}, "other common name"),
        ({"organizations": ["etcd"]}, "other organizations"),
        ({"dns": ["az-1"]}, "other names"),
        ({"ips": ["10.98.0.12"]}, "other names"),
        ({"dns": ["localhost", "AZ-1"], "ips": ["fd00:0::1", "10.98.0.11"]}, None),
    ],
)
def test_a_changed_request(host: FakeHost, change: dict[str, Any], expected: str | None) -> None:
    issue(host)
    converge(KIND, spec(), host)
    assert key_and_csr.KIND.compare(key_spec(csr={**CSR, **change}), host) is None
    assert reason(host) == expected


def test_another_key(host: FakeHost) -> None:
    issue(host)
    converge(KIND, spec(), host)
    (host.folder / KEY.lstrip("/")).unlink()
    converge(key_and_csr.KIND, key_spec(), host)
    assert reason(host) == "not for this key"


def test_another_issuer(host: FakeHost) -> None:
    issue(host)
    converge(KIND, spec(), host)
    assert reason(host, issuer_sha256=Authority().sha256) == "other issuer"


@pytest.mark.parametrize("beside", [True, False])
def test_without_memory_the_authority_proves_the_issuer(host: FakeHost, beside: bool) -> None:
    pem = issue(host, with_ca=not beside)
    host.put(PATH, pem)
    if beside:
        host.put("/etc/etcd/pki/ca.crt", AUTHORITY.pem)
    assert reason(host) is None


def test_without_memory_and_proof_the_issuer_is_another(host: FakeHost) -> None:
    host.put(PATH, issue(host))
    assert reason(host) == "other issuer"


def test_a_certificate_that_only_claims_its_issuer(host: FakeHost) -> None:
    impostor = Authority("etcd")
    host.put(PATH, impostor.sign(request(host)) + AUTHORITY.pem)
    host.put("/etc/etcd/pki/ca.crt", AUTHORITY.pem)
    assert reason(host) == "other issuer"


@pytest.mark.parametrize(
    "content", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_is_replaced(host: FakeHost, content: str) -> None:
    host.put(PATH, content)
    issue(host)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert change.reason == "not a certificate"


@pytest.mark.parametrize(
    ("signed", "expected"),
    [
        (lambda csr, other: AUTHORITY.sign(other), "not for this key"),
        (lambda csr, other: AUTHORITY.sign(csr, common_name="root"), "other common name"),
        (lambda csr, other: AUTHORITY.sign(csr, days=-1), "expired"),
    ],
)
def test_a_certificate_that_does_not_fit_is_not_installed(
    host: FakeHost, tmp_path: Path, signed: Any, expected: str
) -> None:
    stranger = FakeHost(tmp_path / "stranger")
    converge(key_and_csr.KIND, key_spec(), stranger)
    host._certificates = {"etcd/server": signed(request(host), request(stranger))}
    change = KIND.compare(spec(), host)
    assert change is not None
    with pytest.raises(ResourceError, match=expected):
        KIND.apply(spec(), change, host)
    assert not (host.folder / PATH.lstrip("/")).exists()


def test_mode_is_corrected_without_a_new_certificate(host: FakeHost) -> None:
    issue(host)
    converge(KIND, spec(), host)
    (host.folder / PATH.lstrip("/")).chmod(0o600)
    host._certificates = {}
    change = converge(KIND, spec(), host)
    assert change is not None
    assert (change.before, change.after) == ({"mode": "0600"}, {"mode": "0644"})


@pytest.mark.parametrize(
    ("values", "problem"),
    [({}, ""), ({"issuer_sha256": "abc"}, "issuer_sha256"), ({"mode": "9"}, "mode")],
)
def test_check(values: dict[str, Any], problem: str) -> None:
    assert "".join(KIND.check(spec(**values)))[: len(problem)] == problem


@pytest.mark.parametrize(
    ("text", "unix"),
    [
        ("Jan  1 00:00:00 1970 GMT", 0),
        ("Nov 21 20:19:58 2027 GMT", 1826828398),
        ("Nov 21 20:19:58 2027 CET", None),
        ("Nov 21 2027 GMT", None),
        ("", None),
    ],
)
def test_parse_date(text: str, unix: int | None) -> None:
    if unix is None:
        with pytest.raises(ValueError, match=r".+"):
            parse_date(text)
    else:
        assert parse_date(text) == unix


@given(st.datetimes(min_value=datetime.datetime(1970, 1, 2), max_value=datetime.datetime(2200, 1, 1)))
def test_parse_date_reads_every_date(moment: datetime.datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    text = f"{moment:%b} {moment.day:2d} {moment:%H:%M:%S %Y} GMT"
    assert parse_date(text) == int(moment.timestamp())


@given(st.ip_addresses())
def test_addresses_compare_by_value(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert normal_name(f"IP Address:{address.exploded}") == normal_name(f"IP:{address.compressed}")


@given(st.text())
def test_a_description_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_description("notAfter=Jan  1 00:00:00 1970 GMT\n" + text)
