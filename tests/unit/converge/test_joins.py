# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates that hosts join with: whatever a host asks for and says, it gets its own and no other."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import joins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    Request,
    exchange,
    requests_of_joins,
    sign_all,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.certificates import new_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import JOIN_LIFETIME, JOINING_GROUP
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("rack-1", "rack-2", "az-1")
GROUPS = ("system:nodes", JOINING_GROUP)


def document(host: str = "rack-1", **csr: t.Any) -> dict[str, t.Any]:
    """Return the document of a worker that has to join, and has a certificate of another kind too."""
    wanted = {"common_name": f"system:node:{host}", "organizations": list(GROUPS), **csr}
    return {
        "host": host,
        "layers": ["node"],
        "resources": [
            {"id": "node/join", "kind": "kubeadm", "profile": "node-join", "csr": wanted},
            {"id": "node/key", "kind": "key_and_csr", "csr": {"common_name": "x"}},
            {"id": "node/other", "kind": "certificate", "key": "node/key", "profile": "etcd-client"},
        ],
    }


def request(common_name: str = "system:node:rack-1", groups: t.Sequence[str] = GROUPS, *dns: str) -> str:
    """Return a certificate request."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if dns:
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("store")
    made = open_store(folder / "pki", generate_key_file(folder / "key"))
    made.ensure_cas()
    return made


@pytest.fixture
def folder(tmp_path: Path, store: Store) -> RunFolder:
    """The folder of a run of two hosts."""
    made = RunFolder(tmp_path / "run")
    notes: t.Any = {
        "pki_store": str(store.path),
        "pki_key_file": str(store.path.parent / "key"),
        "composed": False,
    }
    made.put([(name, json.dumps(document(name)), notes) for name in NAMES])
    return made


def test_a_host_gets_its_own_certificate_for_an_hour(folder: RunFolder, store: Store) -> None:
    for name in NAMES[:2]:
        asked = {"node/join": request(f"system:node:{name}"), "node/other": "of another kind"}
        joins.keep_requests(folder, name, json.dumps(document(name)), asked)
    assert joins.sign_for_batch(folder, NAMES) == (["rack-1", "rack-2"], {})
    assert joins.certificates_for(folder, "az-1") == {}
    certificates = joins.certificates_for(folder, "rack-1")
    assert list(certificates) == ["node/join"]
    made = x509.load_pem_x509_certificate(certificates["node/join"].encode())
    made.verify_directly_issued_by(
        x509.load_pem_x509_certificate(store.ca("kubernetes").certificate_pem.encode())
    )
    assert {str(part.value) for part in made.subject} == {"system:node:rack-1", *GROUPS}
    usages = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert made.not_valid_after_utc - made.not_valid_before_utc < 2 * JOIN_LIFETIME


OTHERS: list[tuple[str, t.Sequence[str], t.Sequence[str]]] = [
    ("system:node:rack-2", GROUPS, ()),
    ("system:node:az-1", GROUPS, ()),
    ("kubernetes-admin", GROUPS, ()),
    ("system:node:rack-1", ("system:nodes", "system:masters"), ()),
    ("system:node:rack-1", (*GROUPS, "kubeadm:cluster-admins"), ()),
    ("system:node:rack-1", GROUPS, ("api.lab.internal",)),
]


@pytest.mark.parametrize(("name", "groups", "dns"), OTHERS)
def test_what_else_a_host_asks_for_is_not_signed_and_harms_no_other(
    folder: RunFolder, name: str, groups: t.Sequence[str], dns: t.Sequence[str]
) -> None:
    asked = {"node/join": request(name, groups, *dns)}
    joins.keep_requests(folder, "rack-1", json.dumps(document()), asked)
    joins.keep_requests(
        folder, "rack-2", json.dumps(document("rack-2")), {"node/join": request("system:node:rack-2")}
    )
    signed, refused = joins.sign_for_batch(folder, NAMES)
    assert signed == ["rack-2"]
    assert "is refused" in refused["rack-1"]
    assert joins.certificates_for(folder, "rack-1") == {}


def test_a_document_that_a_host_made_up_gets_it_nothing(folder: RunFolder) -> None:
    joins.keep_requests(folder, "rack-1", json.dumps(document()), {"node/join": request()})
    folder.replace("rack-1", json.dumps(document()))
    assert joins.sign_for_batch(folder, ["rack-1"]) == ([], {})


@given(
    st.dictionaries(
        st.sampled_from(["node/join", "node/other", "node/key", "", "etcd/server"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=50), st.just("x" * 5000), st.lists(st.text())),
    )
)
def test_nothing_that_a_host_says_is_kept_but_a_request_of_its_join(said: dict[str, t.Any]) -> None:
    kept = requests_of_joins(document(), said)
    assert set(kept) <= {"node/join"}
    assert all(isinstance(text, str) and len(text) < 5000 for text in kept.values())


def test_a_certificate_of_half_an_hour_ago_is_not_sent(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins.keep_requests(folder, "rack-1", json.dumps(document()), {"node/join": request()})
    joins.sign_for_batch(folder, ["rack-1"])
    monkeypatch.setattr(joins, "FRESH_SECONDS", -1)
    assert joins.certificates_for(folder, "rack-1") == {}


@pytest.mark.parametrize("kind", ["kubeadm", "kubelet_certificate"])
def test_a_document_does_not_let_its_host_ask_for_another_node(kind: str) -> None:
    wrong = document("rack-1", common_name="system:node:rack-2")
    wrong["resources"][0]["kind"] = kind
    with pytest.raises(ExchangeError, match=r"asks in node/join for 'system:node:rack-2'"):
        sign_all(wrong, {"node/join": request("system:node:rack-2")}, lambda *_: "signed")


class Host:
    """Asks for its join again and again, whatever it gets."""

    def __init__(self) -> None:
        self.asked: list[dict[str, t.Any]] = []

    def __call__(self, arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        """Answer."""
        self.asked.append(arguments)
        needs = {"resource": "node/join", "needs": "certificate:node/join"}
        return {"changed": False, "csrs": {"node/join": "CSR"}, "pending": [needs]}


def nobody(document: t.Any, asked: t.Any) -> list[str]:
    """Ask no TPM: the document says nothing of one."""
    return []


def asked_for(secrets: dict[str, str]) -> Request:
    return Request(document=json.dumps(document()), mode="apply", mirror="", secrets=secrets)


def test_a_host_that_says_it_has_to_join_gets_nothing_before_its_turn() -> None:
    host, signed = Host(), list[str]()

    def sign(*request: t.Any) -> str:
        signed.append(request[0])
        return "signed"

    result = exchange(asked_for({}), host, sign, nobody)
    assert (len(host.asked), signed) == (1, [])
    assert result["csrs"] == {"node/join": "CSR"}, "for its turn"


def test_a_host_that_goes_on_asking_fails() -> None:
    host = Host()
    with pytest.raises(ExchangeError, match="told to join, and asks again"):
        exchange(asked_for({"join": "yes"}), host, lambda *_: "signed", nobody)
    assert len(host.asked) == 2
    assert host.asked[1]["certificates"] == {"node/join": "signed"}
