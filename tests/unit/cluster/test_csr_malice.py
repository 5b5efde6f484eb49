# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for more than the inventory gives, in every way a request can: all are denied."""

from __future__ import annotations

import base64
import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import approver, csr
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.kubeconfig import APPROVER
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

NODES = {"rack-1": ["10.98.1.11"]}
USER = "system:node:rack-1"
GOOD_NAMES: list[x509.GeneralName] = [
    x509.DNSName("rack-1"),
    x509.IPAddress(ipaddress.ip_address("10.98.1.11")),
]
SUBJECT = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, USER)]
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
P256 = ec.generate_private_key(ec.SECP256R1())


def built(
    names: t.Sequence[x509.GeneralName] | None = None,
    subject: t.Sequence[tuple[ObjectIdentifier, str]] = SUBJECT,
    key: Key = P256,
    extensions: t.Sequence[x509.ExtensionType] = (),
    digest: t.Any = None,
) -> bytes:
    """Return a signed request, PEM."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName(GOOD_NAMES if names is None else names), critical=False
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    chosen = None if isinstance(key, ed25519.Ed25519PrivateKey) else digest or hashes.SHA256()
    return builder.sign(key, chosen).public_bytes(serialization.Encoding.PEM)


def asked(pem: bytes, **spec: t.Any) -> Object:
    return {
        "metadata": {"name": "csr-1"},
        "spec": {
            "username": USER,
            "groups": ["system:nodes", "system:authenticated"],
            "usages": ["digital signature", "server auth"],
            "request": base64.b64encode(pem).decode(),
            **spec,
        },
    }


def test_the_good_one_is_good() -> None:
    assert csr.refusal(asked(built()), NODES) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (x509.DNSName("*.lab.internal"), "subject alternative names"),
        (x509.DNSName("rack-1."), "subject alternative names"),
        (x509.DNSName("RACK-1"), "subject alternative names"),
        (x509.DNSName("kubernetes.default.svc"), "subject alternative names"),
        (x509.DNSName("rack-1"), "subject alternative names"),
        (x509.IPAddress(ipaddress.ip_address("::ffff:10.98.1.11")), "subject alternative names"),
        (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), "subject alternative names"),
        (x509.RFC822Name("root@rack-1"), "subject alternative names"),
        (x509.UniformResourceIdentifier("spiffe://lab/rack-1"), "subject alternative names"),
        (x509.RegisteredID(ObjectIdentifier("1.2.3.4")), "subject alternative names"),
        (x509.DirectoryName(x509.Name([])), "subject alternative names"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_name_beside_its_own(name: x509.GeneralName, words: str) -> None:
    assert words in csr.refusal(asked(built([*GOOD_NAMES, name])), NODES)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ([*SUBJECT, (NameOID.ORGANIZATION_NAME, "system:masters")], "organisations found"),
        ([*SUBJECT, (NameOID.COMMON_NAME, "kubernetes-admin")], "common name found"),
        ([*SUBJECT, (NameOID.ORGANIZATIONAL_UNIT_NAME, "x")], "wanted none"),
        ([(NameOID.COMMON_NAME, USER)], "organisations found"),
        ([(NameOID.ORGANIZATION_NAME, "system:nodes")], "common name found"),
        ([SUBJECT[0], (NameOID.COMMON_NAME, "system:node:rack-1 ")], "common name found"),
    ],
)
def test_no_subject_but_its_own(subject: list[tuple[ObjectIdentifier, str]], words: str) -> None:
    assert words in csr.refusal(asked(built(subject=subject)), NODES)


@pytest.mark.parametrize(
    "extension",
    [
        x509.BasicConstraints(ca=True, path_length=None),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
        x509.NameConstraints([x509.DNSName("internal")], None),
        x509.OCSPNoCheck(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_extension_but_names(extension: x509.ExtensionType) -> None:
    assert "it asks for the extension" in csr.refusal(asked(built(extensions=[extension])), NODES)


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65537, 1024),
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP192R1()),
    ],
    ids=["rsa-1024", "ed25519", "p192"],
)
def test_no_other_keys(key: Key) -> None:
    assert csr.refusal(asked(built(key=key)), NODES)


def test_a_request_signed_with_another_key_is_denied() -> None:
    """A node cannot have somebody else's key certified: it must hold it."""
    der = x509.load_pem_x509_csr(built()).public_bytes(serialization.Encoding.DER)
    other = x509.load_pem_x509_csr(built(key=ec.generate_private_key(ec.SECP256R1())))
    foreign = other.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    own = P256.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    body = base64.encodebytes(der.replace(own, foreign)).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
    assert "its signature is wrong" in csr.refusal(asked(pem.encode()), NODES)


@pytest.mark.parametrize(
    "spec",
    [
        {"username": "system:node:"},
        {"username": "system:node:RACK-1"},
        {"username": "system:node:rack-1 "},
        {"username": "SYSTEM:NODE:rack-1"},
        {"username": "system:serviceaccount:kube-system:node", "groups": ["system:nodes"]},
        {"username": "kubernetes-admin", "groups": ["system:masters", "system:nodes"]},
        {"groups": []},
        {"groups": ["system:node"]},
        {"usages": ["digital signature", "server auth", "cert sign"]},
        {"usages": ["any"]},
        {"usages": ["server auth"]},
    ],
    ids=str,
)
def test_only_the_node_itself_and_only_to_serve(spec: Object) -> None:
    assert csr.refusal(asked(built(), **spec), NODES)


def test_a_host_that_left_the_inventory_gets_nothing() -> None:
    assert "no host 'rack-1' is in the inventory" in csr.refusal(asked(built()), {"rack-2": ["10.98.1.12"]})


@given(st.binary(max_size=80), st.integers(0, 2000))
def test_no_bytes_are_approved_or_break_it(noise: bytes, position: int) -> None:
    pem = built()
    changed = pem[:position] + noise + pem[position + len(noise) :]
    reason = csr.refusal(asked(changed), NODES)
    # Text before and after the block means nothing; the request itself must be the very same.
    same = b"".join(pem.split()) in b"".join(changed.split())
    assert reason or same


def test_the_approver_may_decide_about_this_signer_and_nothing_else() -> None:
    role, binding = approver.permissions()
    assert role["kind"] == "ClusterRole"
    allowed = {
        (resource, verb, name)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    assert allowed == {
        ("certificatesigningrequests", "get", ""),
        ("certificatesigningrequests", "list", ""),
        ("certificatesigningrequests/approval", "update", ""),
        ("signers", "approve", "kubernetes.io/kubelet-serving"),
    }
    assert [subject["name"] for subject in binding["subjects"]] == list(APPROVER.organizations)
    assert not {"system:masters", "kubeadm:cluster-admins"} & set(APPROVER.organizations)
