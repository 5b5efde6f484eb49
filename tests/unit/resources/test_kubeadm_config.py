# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""kubeadm's texts: documents, discovery file, error output."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import insist

JOIN = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {name: rack-1}\n"
CLUSTER = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.4\n"
INIT = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"
ALL = f"{JOIN}---\n{INIT}---\n{CLUSTER}"


def test_init_reads_everything_but_the_join() -> None:
    kinds = [document["kind"] for document in yaml.safe_load_all(text.init_configuration(ALL))]
    assert kinds == ["InitConfiguration", "ClusterConfiguration"]


@pytest.mark.parametrize(
    ("config", "ca_path"),
    [
        (ALL, "/etc/kubernetes/pki/ca.crt"),
        (JOIN + "caCertPath: /other/ca.crt\n", "/other/ca.crt"),
        (JOIN.rstrip(), "/a"),
    ],
)
def test_join_gets_its_discovery_section(config: str, ca_path: str) -> None:
    default = "/a" if config == JOIN.rstrip() else "/etc/kubernetes/pki/ca.crt"
    document = yaml.safe_load(text.join_configuration(config, "/run/x", default))
    assert document["discovery"] == {"file": {"kubeConfigPath": "/run/x"}}
    assert document["caCertPath"] == ca_path
    assert document["nodeRegistration"] == {"name": "rack-1"}


@pytest.mark.parametrize("config", ["", CLUSTER, f"{JOIN}---\n{JOIN}", JOIN + "discovery: {}\n"])
def test_join_needs_one_join_configuration_without_discovery(config: str) -> None:
    with pytest.raises(ValueError, match=r"JoinConfiguration|discovery"):
        text.join_configuration(config, "/run/x", "/ca.crt")


def test_discovery_file_carries_credentials() -> None:
    config = json.loads(text.discovery_file("api:8443", "PEM", "CERTIFICATE", "KEY"))
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://api:8443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"PEM"
    assert config["users"][0]["user"] == {
        "client-certificate-data": base64.b64encode(b"CERTIFICATE").decode(),
        "client-key-data": base64.b64encode(b"KEY").decode(),
    }
    context = config["contexts"][0]
    assert config["current-context"] == context["name"]
    assert (context["context"]["cluster"], context["context"]["user"]) == ("site", "join")


@pytest.mark.parametrize(
    ("kubeconfig", "server"),
    [
        (None, ""),
        ("", ""),
        (
            "clusters:\n- cluster:\n    certificate-authority-data: x\n    server: https://api.lab:8443\n",
            "api.lab:8443",
        ),
        ('    server: "https://[fd00::1]:6443"\n', "[fd00::1]:6443"),
        ("    server: https://a:1/\n", "a:1"),
        ("users: []\n", ""),
    ],
)
def test_server_of(kubeconfig: str | None, server: str) -> None:
    assert text.server_of(kubeconfig) == server


@pytest.mark.parametrize(
    ("config", "version"),
    [
        (ALL, "1.36.4"),
        ('kubernetesVersion: "v1.37.1"\n', "1.37.1"),
        ("kubernetesVersion: 1.36.4", "1.36.4"),
        ("", ""),
    ],
)
def test_kubernetes_version(config: str, version: str) -> None:
    assert text.kubernetes_version(config) == version


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("apiServer:\n  certSANs: [a, b]\n", "apiServer:\n  certSANs:  [a,  b]\n", True),
        ("apiServer:\n  certSANs: [a, b]\n", "apiServer:\n  certSANs: [a, c]\n", False),
        (
            "apiServer:\n  certSANs:\n  - a\n  - b\n  extraArgs: []\n",
            "apiServer:\n  certSANs:\n  - a\n  extraArgs: []\n",
            False,
        ),
        ("controlPlaneEndpoint: a:1\n", "controlPlaneEndpoint: a:2\n", False),
        ("controlPlaneEndpoint: a:1\nx: 1\n", "controlPlaneEndpoint: a:1\nx: 2\n", True),
    ],
)
def test_certificate_names(one: str, other: str, equal: bool) -> None:
    assert (text.certificate_names(one) == text.certificate_names(other)) is equal


@pytest.mark.parametrize(
    ("output", "line", "remedy"),
    [
        (
            "[preflight] Running\nerror execution phase preflight: [preflight] Some fatal errors occurred:\n"
            "\t[ERROR Port-10250]: Port 10250 is in use\n[preflight] If you know what you are doing\n"
            "To see the stack trace of this error execute with --v=5 or higher\n",
            "[ERROR Port-10250]: Port 10250 is in use",
            "preflight",
        ),
        (
            'error: a Node with name "a" and status "Ready" already exists in the cluster',
            "already exists",
            "still Ready",
        ),
        (
            "couldn't validate the identity of the API Server: Unauthorized\n",
            "Unauthorized",
            "certificate for the join has expired",
        ),
        ("error: dial tcp 10.98.0.11:8443: connect: connection refused\n", "refused", "cannot be reached"),
        ("error: context deadline exceeded\n", "deadline", "cannot be reached"),
        ("error: x509: certificate signed by unknown authority\n", "x509", "another CA"),
        ("error: external etcd: health check failed\n", "etcd", "etcd is healthy"),
        ("", "no reason", "journalctl -u kubelet"),
    ],
)
def test_errors_are_explained(output: str, line: str, remedy: str) -> None:
    assert line in text.explain(output)
    assert "stack trace" not in text.explain(output)
    assert "If you know" not in text.explain(output)
    assert remedy in text.remedy_for(output)


@given(st.text())
def test_texts_never_fail(config: str) -> None:
    text.split_documents(config)
    text.certificate_names(config)
    text.kubernetes_version(config)
    assert text.explain(config)
    assert text.remedy_for(config)


@given(
    st.lists(st.sampled_from([JOIN, INIT, CLUSTER]), min_size=1, max_size=5),
    st.sampled_from(["---\n", "---  \n"]),
)
def test_documents_are_split_where_yaml_splits_them(documents: list[str], separator: str) -> None:
    whole = separator.join(documents)
    expected: list[Any] = [document["kind"] for document in yaml.safe_load_all(whole)]
    assert [kind for kind, _ in text.split_documents(whole)] == expected


EXPIRED = "Get https://a: tls: x509: certificate has expired or is not yet valid: current time 2026 is before"


@pytest.mark.parametrize(
    ("fault", "output"),
    [
        ("join-certificate", "error execution phase preflight: failed to get config map: Unauthorized"),
        ("admin-expired", "error execution phase upload-config/kubeadm: unable to create RBAC: Unauthorized"),
        ("admin-expired", "[upgrade/config] FATAL: failed to get config map: Unauthorized"),
        ("join-cut", "error execution phase preflight: Get https://a: dial tcp 10.0.0.9:8443: i/o timeout"),
        ("join-clock", f"error execution phase preflight: {EXPIRED}"),
    ],
)
def test_what_people_meet_is_explained_as_promised(fault: str, output: str) -> None:
    insist(fault, f"{text.explain(output)}. {text.remedy_for(output)}")
