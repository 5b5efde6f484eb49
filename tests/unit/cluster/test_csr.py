# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import ipaddress
import ssl
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import csr, joining
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_api import REQUESTS, FakeApi

NODES = {"rack-1": ["10.98.1.11"], "rack-2": ["10.98.1.12"]}


def request(
    names: t.Sequence[str] = ("rack-1",),
    addresses: t.Sequence[str] = ("10.98.1.11",),
    common_name: str = "system:node:rack-1",
    organization: str = "system:nodes",
    **spec: t.Any,
) -> Object:
    """Return a request as the API has it."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(certificates.new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return {
        "metadata": {"name": "csr-1"},
        "spec": {
            "username": "system:node:rack-1",
            "groups": ["system:nodes", "system:authenticated"],
            "usages": ["digital signature", "server auth"],
            "request": base64.b64encode(pem).decode(),
            **spec,
        },
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"usages": ["server auth", "digital signature", "key encipherment"]}, ""),
        ({"usages": ["digital signature", "server auth", "client auth"]}, "it asks for the usages"),
        ({"usages": ["digital signature"]}, "it asks for the usages"),
        ({"usages": []}, "it asks for the usages"),
        ({"username": "admin"}, "the requestor 'admin' is not a node"),
        ({"username": ""}, "the requestor '' is not a node"),
        ({"groups": ["system:authenticated"]}, "is not a node"),
        ({"username": "system:node:rack-9"}, "no host 'rack-9' is in the inventory"),
        ({"username": "system:node:rack-2"}, "common name found"),
        ({"common_name": "system:node:rack-2"}, "common name found"),
        ({"organization": "system:masters"}, "organisations found"),
        ({"names": []}, "subject alternative names found"),
        ({"names": ["rack-2"]}, "subject alternative names found"),
        ({"names": ["rack-1", "api.lab.internal"]}, "subject alternative names found"),
        ({"addresses": []}, "subject alternative names found"),
        ({"addresses": ["10.98.1.12"]}, "subject alternative names found"),
        ({"addresses": ["10.98.1.11", "10.96.0.1"]}, "subject alternative names found"),
        ({"request": ""}, "not a certificate request"),
        ({"request": "%%%"}, "it holds no request"),
        ({"request": base64.b64encode(b"x").decode()}, "not a certificate request"),
    ],
)
def test_refusals(change: dict[str, t.Any], reason: str) -> None:
    found = csr.refusal(request(**change), NODES)
    assert reason in found if reason else not found


@given(
    name=st.sampled_from(["rack-1", "rack-2", "rack-3", ""]),
    asked=st.sampled_from(["rack-1", "rack-2", "rack-3"]),
)
def test_only_a_node_that_asks_for_itself_is_approved(name: str, asked: str) -> None:
    addresses = NODES.get(asked, ["10.98.1.13"])
    body = request([asked], addresses, f"system:node:{asked}", username=f"system:node:{name}")
    assert (csr.refusal(body, NODES) == "") is (name == asked and name in NODES)


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with FakeApi() as made:
        yield made


def client(fake: FakeApi) -> Api:
    return Api(f"http://127.0.0.1:{fake.port}", ssl.create_default_context(), None, 5)


def pending(uid: str, version: str, **changes: t.Any) -> Object:
    """Return a request that nobody has decided about, as the API has it."""
    body = request(**changes)
    body["metadata"] = {
        "name": "csr-1",
        "uid": uid,
        "resourceVersion": version,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    body["spec"]["signerName"] = csr.SIGNER
    return body


@pytest.mark.parametrize("version", ["1", "2"], ids=["the-same-version", "another-version"])
def test_a_request_made_anew_under_its_name_is_not_approved_for_what_it_was(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    path = f"{REQUESTS}/csr-1"
    fake.objects[path] = pending("uid-1", "1")
    another = pending("uid-2", version, names=["api.lab.internal"], common_name="system:node:rack-2")
    judged = csr.refusal

    def judge(found: Object, nodes: t.Any) -> str:
        reason = judged(found, nodes)
        # Now that it was found right, the node deletes it and asks for something else under its name.
        fake.objects[path] = another
        return reason

    monkeypatch.setattr(csr, "refusal", judge)
    outcome = csr.approve_pending(client(fake), NODES)
    assert (outcome.approved, outcome.denied) == ([], [])
    assert "conditions" not in fake.objects[path].get("status", {})

    monkeypatch.setattr(csr, "refusal", judged)
    outcome = csr.approve_pending(client(fake), NODES)
    assert [verdict.node for verdict in outcome.denied] == ["rack-1"]
    assert fake.objects[path]["status"]["conditions"][0]["type"] == "Denied"


def test_a_request_that_somebody_else_decided_is_left_to_them(fake: FakeApi) -> None:
    fake.objects[f"{REQUESTS}/csr-1"] = pending("uid-1", "1")
    (seen,) = client(fake).get(REQUESTS)["items"]
    fake.objects[f"{REQUESTS}/csr-1"] = {**seen, "status": {"conditions": [{"type": "Denied"}]}}
    fake.objects[f"{REQUESTS}/csr-1"]["metadata"]["resourceVersion"] = "2"
    assert csr.approve_pending(client(fake), NODES).approved == []


CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


@pytest.mark.parametrize(
    ("groups", "joined"),
    [
        (["system:nodes", "ironspan:joining", "system:authenticated"], True),
        (["system:nodes", "system:authenticated"], False),
    ],
    ids=["first", "renewal"],
)
def test_a_join_is_told_from_a_renewal(fake: FakeApi, groups: list[str], joined: bool) -> None:
    asked = pending("uid-1", "1", names=[], addresses=[], groups=groups, usages=["client auth"])
    asked["spec"]["signerName"] = CLIENT_SIGNER
    fake.objects[f"{REQUESTS}/csr-1"] = asked
    assert csr.approve_pending(client(fake), NODES).joining == (["rack-1"] if joined else [])
    assert "status" not in fake.objects[f"{REQUESTS}/csr-1"], "client certificates are not decided here"


def test_nobody_but_nodes_gets_a_client_certificate_approved_by_itself() -> None:
    bound = {
        (body["roleRef"]["name"], subject["name"])
        for body in joining._permissions()
        if body["kind"] == "ClusterRoleBinding"
        for subject in body["subjects"]
    }
    approve = "system:certificates.k8s.io:certificatesigningrequests"
    assert {entry for entry in bound if entry[0].startswith(approve)} == {
        (f"{approve}:selfnodeclient", "system:nodes")
    }
    assert not [entry for entry in bound if "bootstrapper" in "".join(entry)]
