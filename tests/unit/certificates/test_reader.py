# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host answers, and what the report makes of it."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import os
import time
import typing as t
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _certificates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import found
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.report import Report, problems_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates as made
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import DROP, ISSUE, TRUST
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

NOW = datetime.datetime.now(datetime.UTC)
KUBELET = "/var/lib/kubelet/pki/kubelet-client-current.pem"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "pki", generate_key_file(tmp_path / "key"))
    opened.ensure_cas()
    return opened


def leaf(
    store: Store, name: str = "kubernetes", days: float = 365, common_name: str = "leaf"
) -> tuple[str, str]:
    """Return a certificate of the authority in use, and its key."""
    authority = store.ca(name)
    key = made.new_key()
    certificate = made.issue(
        x509.load_pem_x509_certificate(authority.signing_pem.encode()),
        t.cast("t.Any", serialization.load_pem_private_key(authority.key_pem().encode(), None)),
        key.public_key(),
        made.Names("leaf"),
        [ExtendedKeyUsageOID.CLIENT_AUTH],
        datetime.timedelta(days=days),
        NOW,
    )
    return made.certificate_pem(certificate), made.private_pem(key).decode()


def put(root: Path, path: str, text: str) -> None:
    real = root / path.lstrip("/")
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_text(text)


def empty_host(root: Path) -> None:
    put(root, "/proc/stat", "cpu 1\nbtime 1000\n")


def test_everything_is_found_and_no_private_key_leaves_the_host(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "root"
    empty_host(root)
    certificate, key = leaf(store)
    authority = store.ca("kubernetes").certificate_pem
    put(root, KUBELET, certificate + key)
    put(root, "/etc/kubernetes/pki/ca.crt", authority * 2)
    data = {name: base64.b64encode(text.encode()).decode() for name, text in (("c", certificate), ("k", key))}
    put(
        root,
        "/etc/kubernetes/admin.conf",
        f"certificate-authority-data: {base64.b64encode(authority.encode()).decode()}\n"
        f"client-certificate-data: {data['c']}\nclient-key-data: {data['k']}\n",
    )
    put(root, "/etc/kubernetes/pki/sa.pub", store.service_account_public_key())
    put(root, "/etc/kubernetes/pki/sa.key", store.service_account_key())
    put(root, "/etc/etcd/pki/server.crt", "nonsense")
    answer = _certificates.read(str(root))
    places = [(entry["path"], entry["field"]) for entry in answer["certificates"]]
    assert places == [
        ("/etc/kubernetes/pki/ca.crt", ""),
        ("/etc/kubernetes/pki/ca.crt", ""),
        (KUBELET, ""),
        ("/etc/kubernetes/admin.conf", "client-certificate-data"),
        ("/etc/kubernetes/admin.conf", "certificate-authority-data"),
    ]
    assert answer["unreadable"] == ["/etc/etcd/pki/server.crt"]
    assert answer["public_keys"] == store.service_account_public_key()
    assert abs(answer["written"]["/etc/kubernetes/pki/sa.key"] - time.time()) < 60
    text = json.dumps(answer)
    assert "PRIVATE" not in text
    assert data["k"] not in text


def test_when_programs_were_started(tmp_path: Path) -> None:
    empty_host(tmp_path)
    tick = os.sysconf("SC_CLK_TCK")
    for number, name, seconds in ((7, "/usr/local/bin/etcd", 50), (8, "kubelet", 60), (9, "kubelet", 70)):
        # The name in brackets is the process's own choice.
        fields = ["S", *["0"] * 18, str(seconds * tick), "0"]
        put(tmp_path, f"/proc/{number}/stat", f"{number} (a) b) {' '.join(fields)}\n")
        put(tmp_path, f"/proc/{number}/cmdline", f"{name}\0--x\0")
    put(tmp_path, "/proc/10/cmdline", "etcd\0")
    assert _certificates.started(str(tmp_path)) == {"etcd": 1050.0, "kubelet": 1070.0}


@hypothesis.given(st.binary(max_size=200))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=50)
def test_no_content_of_a_file_breaks_the_reader(tmp_path: Path, content: bytes) -> None:
    empty_host(tmp_path)
    for path in ("etc/kubernetes/admin.conf", "etc/kubernetes/pki/ca.crt"):
        real = tmp_path / path
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content)
    answer = _certificates.read(str(tmp_path))
    assert answer["certificates"] == []


def report(store: Store, host: str, entries: list[dict[str, str]], days: int = 30) -> Report:
    authorities = found.Authorities(store)
    generations = {name: store.generations(name) for name in ("etcd", "kubernetes", "front-proxy")}
    trusted = {name: state.trusted for name, state in generations.items()}
    seen = [*found.of_store(authorities, trusted), *found.of_host(host, entries, authorities)]
    return Report("lab", NOW, days, seen, problems_of({host: True}, {}, seen, generations), generations)


def test_a_report_names_what_is_due(store: Store) -> None:
    entries = [
        {"path": "/etc/kubernetes/pki/apiserver.crt", "field": "", "pem": leaf(store, days=10)[0]},
        {"path": "/etc/etcd/pki/server.crt", "field": "", "pem": leaf(store, "etcd")[0]},
    ]
    made_report = report(store, "az-1", entries)
    assert [entry.path for entry in made_report.due] == ["/etc/kubernetes/pki/apiserver.crt"]
    assert not made_report.ok
    assert not made_report.problems
    text = made_report.as_text()
    assert "API server" in text
    assert "10.0 due" in text
    assert "5 certificates, 1 due within 30 days" in text
    content = json.loads(json.dumps(made_report.as_json()))
    assert content["due"][0]["days_left"] == pytest.approx(10, abs=0.1)
    assert report(store, "az-1", entries, days=5).ok
    late = NOW + datetime.timedelta(days=11)
    assert "-1.0 expired" in dataclasses.replace(made_report, now=late).as_text()


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        ("/etc/etcd/pki/server.crt", "kubernetes", "an authority that is not this site's"),
        ("/etc/kubernetes/pki/front-proxy-client.crt", "etcd", "an authority that is not this site's"),
    ],
)
def test_a_certificate_of_the_wrong_authority_is_a_problem(
    store: Store, path: str, name: str, words: str
) -> None:
    entry = {"path": path, "field": "", "pem": leaf(store, name)[0]}
    assert report(store, "az-1", [entry]).problems == [f"az-1: {path} has a certificate of {words}"]


def test_a_foreign_authority_of_the_same_name_is_not_ours(store: Store, tmp_path: Path) -> None:
    other = open_store(tmp_path / "other", generate_key_file(tmp_path / "other.key"))
    other.ensure_cas()
    entries = [
        {"path": "/etc/kubernetes/pki/apiserver.crt", "field": "", "pem": leaf(other)[0]},
        {"path": "/etc/kubernetes/pki/ca.crt", "field": "", "pem": other.ca("kubernetes").certificate_pem},
    ]
    problems = report(store, "az-1", entries).problems
    assert len(problems) == 2
    assert all("not this site's" in problem for problem in problems)


def test_what_a_dropped_authority_signed_is_named(store: Store) -> None:
    pem = leaf(store, "etcd")[0]
    for move in (TRUST, ISSUE, DROP):
        store.move("etcd", move)
    entry = {"path": "/etc/etcd/pki/server.crt", "field": "", "pem": pem}
    made_report = report(store, "az-1", [entry])
    assert made_report.problems == [
        "az-1: /etc/etcd/pki/server.crt has a certificate of generation 1 of etcd, which was dropped"
    ]
    assert "etcd is being changed: stage drop" in made_report.as_text()


def test_a_fleet_is_one_line_a_kind(store: Store) -> None:
    authorities = found.Authorities(store)
    entries = [{"path": KUBELET, "field": "", "pem": leaf(store, days=300 + n)[0]} for n in range(6)]
    seen = [
        entry
        for number, raw in enumerate(entries)
        for entry in found.of_host(f"rack-{number}", [raw], authorities)
    ]
    whole = Report("lab", NOW, 30, seen, [], {})
    assert "6 hosts, first rack-0" in whole.as_text()
    assert whole.as_text(everything=True).count("kubelet to API") == 6


def test_hosts_that_did_not_answer_are_problems() -> None:
    assert problems_of({"az-1": True, "rack-9": False}, {"az-1": ["/x"]}, [], {}) == [
        "rack-9 did not answer",
        "az-1: /x holds no certificate",
    ]
