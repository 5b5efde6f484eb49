# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``key_and_csr``, with the real openssl."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.key_and_csr import (
    KIND,
    certificate_request,
    pem_blocks,
    public_key,
    request_configuration,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

KEY = "/etc/etcd/pki/server.key"
CSR = {
    "common_name": "system:node:az-1",
    "organizations": ["system:nodes", "second part"],
    "dns": ["az-1", "*.lab.internal"],
    "ips": ["10.98.0.11", "fd00::1"],
}


def spec(**values: Any) -> dict[str, Any]:
    return filled(KIND, **{"id": "etcd/key", "key_path": KEY, "csr": CSR, **values})


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def real_openssl_runs(host: FakeHost) -> None:
    """Record openssl's calls, and let the real one do the work."""
    host.program("openssl", 'PATH=/usr/bin:/bin exec openssl "$@"')


@pytest.mark.parametrize(
    ("algorithm", "sort"), [("ecdsa-p256", ec.EllipticCurvePrivateKey), ("rsa-2048", rsa.RSAPrivateKey)]
)
def test_makes_a_key_only_its_owner_can_read(host: FakeHost, algorithm: str, sort: type) -> None:
    change = converge(KIND, spec(algorithm=algorithm), host)
    assert change is not None
    assert (change.action, change.before, change.after) == ("create", {"key": None}, {"key": algorithm})
    path = host.folder / KEY.lstrip("/")
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, sort)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["server.key"]
    assert KEY in host.backups


def test_the_key_is_private_from_its_first_byte(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    written = files.write_all
    modes = []

    def watched(descriptor: int, data: bytes) -> None:
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        written(descriptor, data)

    monkeypatch.setattr(files, "write_all", watched)
    host.program("openssl", 'PATH=/usr/bin:/bin exec openssl "$@"')
    converge(KIND, spec(mode="0640"), host)
    # OpenSSL writes no file: what it does with a path is done as root, wherever the path leads.
    assert modes == [0o600]
    assert not [call for call in host.calls("openssl") if "-out" in call]
    assert (host.folder / KEY.lstrip("/")).stat().st_mode & 0o777 == 0o640


def test_of_a_key_that_is_not_there_nothing_is_known(host: FakeHost) -> None:
    """A join asks so whether an earlier run made its key."""
    assert public_key(host, "/run/none.key") is None


def test_nothing_to_do_costs_no_program(host: FakeHost) -> None:
    converge(KIND, spec(), host)
    real_openssl_runs(host)
    assert KIND.compare(spec(), host) is None
    assert host.calls() == []


def test_a_touched_key_is_looked_at_again_and_kept(host: FakeHost) -> None:
    converge(KIND, spec(), host)
    before = host.text(KEY)
    (host.folder / KEY.lstrip("/")).touch()
    assert KIND.compare(spec(), host) is None
    assert host.text(KEY) == before


@pytest.mark.parametrize(
    "content", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_replaced(host: FakeHost, content: str) -> None:
    host.put(KEY, content, 0o600)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert change.before == {"key": "of no use"}


def test_a_key_of_another_algorithm_is_replaced(host: FakeHost) -> None:
    converge(KIND, spec(algorithm="rsa-2048"), host)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert isinstance(load_pem_private_key(host.text(KEY).encode(), None), ec.EllipticCurvePrivateKey)


def test_a_mode_that_was_opened_is_closed_and_the_key_stays(host: FakeHost) -> None:
    converge(KIND, spec(), host)
    before = host.text(KEY)
    (host.folder / KEY.lstrip("/")).chmod(0o644)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert (change.before, change.after) == ({"mode": "0644"}, {"mode": "0600"})
    assert host.text(KEY) == before


def test_a_failing_openssl_leaves_nothing(host: FakeHost) -> None:
    host.program("openssl", "echo 'out of entropy' >&2; exit 1")
    change = KIND.compare(spec(), host)
    assert change is not None
    with pytest.raises(ResourceError, match="out of entropy"):
        KIND.apply(spec(), change, host)
    assert list((host.folder / "etc/etcd/pki").iterdir()) == []


@pytest.mark.parametrize(
    "leave_out", [(), ("organizations",), ("dns",), ("ips",), ("dns", "ips", "organizations")]
)
def test_the_request_asks_for_exactly_this(host: FakeHost, leave_out: tuple[str, ...]) -> None:
    csr = {**CSR, **{name: [] for name in leave_out}}
    converge(KIND, spec(csr=csr), host)
    request = x509.load_pem_x509_csr(certificate_request(host, KEY, csr).encode())
    assert request.is_signature_valid
    names = [attribute.value for attribute in request.subject]
    assert names == [*csr["organizations"], csr["common_name"]]
    if csr["dns"] or csr["ips"]:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert found.get_values_for_type(x509.DNSName) == csr["dns"]
        assert [str(address) for address in found.get_values_for_type(x509.IPAddress)] == csr["ips"]
    else:
        assert len(request.extensions) == 0


def test_no_secret_in_an_argument(host: FakeHost) -> None:
    real_openssl_runs(host)
    converge(KIND, spec(), host)
    certificate_request(host, KEY, CSR)
    body = "".join(host.text(KEY).splitlines()[1:-1])
    words = [word for call in host.calls() for word in call]
    assert len(words) > 10
    # Long enough to be in no argument by chance, as "EC" is in one key of twenty-five.
    parts = [body[start : start + 12] for start in range(len(body) - 11)]
    assert len(parts) > 100
    assert not [word for word in words if "PRIVATE" in word or any(part in word for part in parts)]
    assert body not in str(host.note("etcd/key"))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, None),
        ({"mode": "0640"}, None),
        ({"mode": "0644"}, "everybody"),
        ({"mode": "rw"}, "octal"),
        ({"csr": {"common_name": "a", "cn": "b"}}, "unknown cn"),
        ({"csr": {"common_name": ""}}, "cannot stand"),
        ({"csr": {"common_name": "a\nb"}}, "cannot stand"),
        ({"csr": {"common_name": "$ENV::HOME"}}, "cannot stand"),
        ({"csr": {"common_name": "a", "dns": ["a, IP:10.0.0.1"]}}, "cannot stand"),
        ({"csr": {"common_name": "a", "organizations": ["x" * 65]}}, "cannot stand"),
    ],
)
def test_check(values: dict[str, Any], problem: str | None) -> None:
    problems = KIND.check(spec(**values))
    assert (problem is None and not problems) or (problem is not None and problem in problems[0])


@given(st.text())
def test_no_name_gets_into_the_configuration_by_the_back_door(name: str) -> None:
    try:
        lines = request_configuration({"common_name": name}).splitlines()
    except ResourceError:
        return
    assert lines[-1] == f"CN = {name}"
    assert lines.count("[subject]") == 1


@given(st.text())
def test_pem_blocks_never_fail(text: str) -> None:
    assert all(isinstance(block, bytes) for block in pem_blocks(text))
    assert pem_blocks(f"-----BEGIN CERTIFICATE-----{text}") == []


def test_openssl_is_the_real_one() -> None:
    assert subprocess.run(["openssl", "version"], capture_output=True, check=True).stdout.startswith(
        b"OpenSSL 3"
    )
