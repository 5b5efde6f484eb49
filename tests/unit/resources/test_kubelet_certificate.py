# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kinds ``kubelet_certificate`` and ``kubeconfig_authority``, with the real openssl."""

from __future__ import annotations

import base64
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeconfig
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kubeconfig_authority import (
    KIND as KUBECONFIG,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kubelet_certificate import KIND
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Pending, ResourceError
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from .authorities import Authority, key_pem, kubeconfig, new_key
from .fake_host import FakeHost, converge, filled

FOLDER = "/var/lib/kubelet/pki"
PATH = f"{FOLDER}/kubelet-server-current.pem"
CA_PATH = "/etc/kubernetes/pki/ca.crt"
OLD, NEW = Authority(), Authority("kubernetes-2")
NAMES: list[x509.GeneralName] = [x509.DNSName("rack-1"), x509.IPAddress(ipaddress.ip_address("10.98.1.11"))]
CSR: dict[str, Any] = {
    "common_name": "system:node:rack-1",
    "organizations": ["system:nodes"],
    "dns": ["rack-1"],
    "ips": ["10.98.1.11"],
}


def spec(issuer: Authority, **values: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "id": "node/kubelet-serving",
        "path": PATH,
        "profile": "kubelet-serving",
        "csr": CSR,
        "issuer_sha256": issuer.sha256,
    }
    return filled(KIND, **{**given, **values})


def joined(root: Path, issuer: Authority = OLD, days: float = 365, **names: Any) -> tuple[FakeHost, Any]:
    """Return a host whose kubelet has a certificate, and the kubelet's key."""
    host, key = FakeHost(root), new_key()
    chosen = {"common_name": "system:node:rack-1", "organizations": ["system:nodes"], "names": NAMES, **names}
    certificate = issuer.sign(key.public_key(), days=days, **chosen)
    host.put(CA_PATH, OLD.pem + NEW.pem)
    real = host.put(f"{FOLDER}/kubelet-server-2026-01-01-00-00-00.pem", certificate + key_pem(key), 0o600)
    Path(host.path(PATH)).symlink_to(real.name)
    return host, key


def test_a_kubelet_without_a_certificate_asks_for_its_first_one_itself(tmp_path: Path) -> None:
    assert KIND.compare(spec(OLD), FakeHost(tmp_path)) is None


def test_what_is_right_stays_and_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = joined(tmp_path)
    assert KIND.compare(spec(OLD), host) is None
    monkeypatch.setattr(host, "run", lambda *_, **__: pytest.fail("a program was run"))
    assert KIND.compare(spec(OLD), host) is None


@pytest.mark.parametrize(
    ("made", "wanted", "reason"),
    [
        ({}, NEW, "other issuer"),
        ({"days": 10}, OLD, "expires soon"),
        ({"days": -1}, OLD, "expired"),
        ({"names": NAMES[:1]}, OLD, "other names"),
    ],
)
def test_another_one_is_asked_for_with_the_kubelets_own_key(
    tmp_path: Path, made: dict[str, Any], wanted: Authority, reason: str
) -> None:
    host, key = joined(tmp_path, **made)
    with pytest.raises(Pending, match="certificate:node/kubelet-serving"):
        KIND.compare(spec(wanted), host)
    request = x509.load_pem_x509_csr(host.csrs["node/kubelet-serving"].encode())
    assert request.public_key() == key.public_key()
    signed = wanted.sign(key.public_key(), CSR["common_name"], CSR["organizations"], NAMES)
    renewed = FakeHost(tmp_path, certificates={"node/kubelet-serving": signed})
    change = converge(KIND, spec(wanted), renewed)
    assert change is not None
    assert reason in change.reason
    text = host.text(PATH)
    assert x509.load_pem_x509_certificate(text.encode()) == x509.load_pem_x509_certificate(signed.encode())
    kept = serialization.load_pem_private_key(text.encode(), None)
    assert kept.public_key() == key.public_key()
    real = Path(host.path(PATH)).resolve()
    assert real.name != "kubelet-server-2026-01-01-00-00-00.pem"
    assert real.stat().st_mode & 0o777 == 0o600
    assert set(renewed.backups) == {PATH, f"{FOLDER}/{real.name}"}
    # What was there is not overwritten: a rollback lets the link point to it again.
    assert Path(host.path(f"{FOLDER}/kubelet-server-2026-01-01-00-00-00.pem")).exists()


def test_the_kubelets_own_renewal_is_noticed(tmp_path: Path) -> None:
    host, key = joined(tmp_path)
    assert KIND.compare(spec(OLD), host) is None
    certificate = OLD.sign(key.public_key(), "system:node:rack-1", ["system:nodes"], NAMES, days=-1)
    Path(host.path(PATH)).resolve().write_text(certificate + key_pem(key))
    with pytest.raises(Pending):
        KIND.compare(spec(OLD), host)


@pytest.mark.parametrize("wrong", ["key", "name"])
def test_a_certificate_that_does_not_fit_is_not_written(tmp_path: Path, wrong: str) -> None:
    _, key = joined(tmp_path, days=1)
    public = (new_key() if wrong == "key" else key).public_key()
    name = "system:node:rack-2" if wrong == "name" else "system:node:rack-1"
    signed = OLD.sign(public, name, ["system:nodes"], NAMES)
    host = FakeHost(tmp_path, certificates={"node/kubelet-serving": signed})
    before = host.text(PATH)
    with pytest.raises(ResourceError, match="does not fit"):
        converge(KIND, spec(OLD), host)
    assert host.text(PATH) == before


def test_an_authority_that_is_not_in_the_file_yet_is_asked_for_again(tmp_path: Path) -> None:
    host, _ = joined(tmp_path, NEW)
    host.put(CA_PATH, OLD.pem)
    with pytest.raises(Pending):
        KIND.compare(spec(NEW), host)
    host.put(CA_PATH, OLD.pem + NEW.pem)
    assert KIND.compare(spec(NEW), host) is None


def authority_spec() -> dict[str, Any]:
    return filled(KUBECONFIG, id="node/kubeconfig", path="/etc/kubernetes/kubelet.conf")


def test_a_kubeconfig_follows_the_file_of_authorities(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    assert KUBECONFIG.compare(authority_spec(), host) is None
    host.put(CA_PATH, OLD.pem)
    assert KUBECONFIG.compare(authority_spec(), host) is None
    text = kubeconfig(OLD.pem, "certificate", "key")
    host.put("/etc/kubernetes/kubelet.conf", text, 0o600)
    assert KUBECONFIG.compare(authority_spec(), host) is None
    host.put(CA_PATH, OLD.pem + NEW.pem)
    change = converge(KUBECONFIG, authority_spec(), host)
    assert change is not None
    assert change.before == {"trusts": [OLD.sha256]}
    assert change.after == {"trusts": [OLD.sha256, NEW.sha256]}
    assert host.text("/etc/kubernetes/kubelet.conf") == kubeconfig(OLD.pem + NEW.pem, "certificate", "key")
    assert Path(host.path("/etc/kubernetes/kubelet.conf")).stat().st_mode & 0o777 == 0o600
    assert host.backups == ["/etc/kubernetes/kubelet.conf"]


@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_only_the_authority_of_a_kubeconfig_changes(old: bytes, new: bytes, quoted: bool) -> None:
    def text(data: bytes) -> str:
        value = base64.b64encode(b"x" + data).decode()
        return f"clusters:\n- certificate-authority-data: {value}\nusers:\n- client-key-data: {value}\n"

    before = text(old)
    if quoted:
        first, second = before.split("\n- ", 1)[1].split("\n", 1)
        name, value = first.split(": ")
        before = f'clusters:\n- {name}: "{value}"\n{second}'
    replaced = base64.b64encode(new.hex().encode()).decode()
    after = _kubeconfig.with_authority(before, new.hex())
    assert after.split("users:")[1] == before.split("users:")[1]
    assert f"certificate-authority-data: {replaced}\n" in after
    assert _kubeconfig.embedded(after, _kubeconfig.AUTHORITY) == new.hex()
    assert _kubeconfig.with_authority(after, new.hex()) == after


@pytest.mark.parametrize("text", ["", "certificate-authority: /ca.crt\n", "client-certificate-data: %%%\n"])
def test_a_kubeconfig_without_embedded_data_is_left_alone(text: str) -> None:
    assert _kubeconfig.with_authority(text, OLD.pem) == text
    assert _kubeconfig.embedded(text, _kubeconfig.CLIENT) == ""
