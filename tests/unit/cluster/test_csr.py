# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import datetime
import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import bootstrap, csr
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

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


def test_token_does_not_show_itself() -> None:
    token = bootstrap.Token("abcdef", "abcdef.0123456789abcdef", "2026-11-21T12:00:00Z")
    assert "0123456789abcdef" not in repr(token) + str(token) + f"{token}"
    assert datetime.datetime.fromisoformat(token.expires).tzinfo is not None
