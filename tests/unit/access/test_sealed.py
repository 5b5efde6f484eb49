# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A kubeconfig for emergencies opens with all its passphrases, unaltered, and not otherwise."""

from __future__ import annotations

import base64
import datetime
import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import sealed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    PkiError,
    Store,
    generate_key_file,
    open_store,
)
from cryptography import x509
from cryptography.x509.oid import NameOID

NOW = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)
WORDS = {"ada": "correct horse battery staple", "bob": "another four random words"}
WORK = 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("store")
    made = open_store(folder / "pki", generate_key_file(folder / "key"))
    made.ensure_cas()
    return made


def make(store: Store, words: dict[str, str] = WORDS, days: int = 30) -> sealed.Sealed:
    return sealed.make(store, "api.example.com:6443", "192.0.2.1", words, days, NOW, WORK)


@pytest.fixture(scope="module")
def made(store: Store) -> sealed.Sealed:
    return make(store)


def test_all_together_open_it(made: sealed.Sealed) -> None:
    assert sealed.keepers(made.text) == ["ada", "bob"]
    config = sealed.unseal(made.text, WORDS)
    user = config["users"][0]["user"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    subject = certificate.subject
    groups = [item.value for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert groups == ["ironspan:break-glass"], "not system:masters, which nothing takes away"
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == made.user
    assert certificate.not_valid_after_utc == made.expires == NOW + datetime.timedelta(days=30)
    assert "PRIVATE" not in made.text
    assert not any(word in made.text for word in WORDS.values())


def test_every_seal_has_a_name_of_its_own(store: Store, made: sealed.Sealed) -> None:
    assert make(store).user != made.user


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"ada": WORDS["ada"]}, "passphrase of bob is missing"),
        ({}, "passphrase of ada, bob is missing"),
        ({**WORDS, "bob": "something else"}, "does not open"),
        ({"ada": WORDS["bob"], "bob": WORDS["ada"]}, "does not open"),
    ],
)
def test_fewer_do_not(made: sealed.Sealed, words: dict[str, str], reason: str) -> None:
    with pytest.raises(PkiError, match=reason) as refused:
        sealed.unseal(made.text, words)
    assert not any(word in str(refused.value) for word in WORDS.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", "ironspan:break-glass:other"),
        ("expires", "2030-01-01T00:00:00Z"),
        ("work", 32),
        ("salts", {"ada": "00", "bob": "11"}),
        ("more", 1),
    ],
)
def test_an_altered_file_does_not_open(made: sealed.Sealed, field: str, value: t.Any) -> None:
    text = json.dumps({**json.loads(made.text), field: value})
    with pytest.raises(PkiError, match="does not open"):
        sealed.unseal(text, WORDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"work": 2**40},
        {"work": 3},
        {"work": "16"},
        {"salts": {}},
        {"salts": {"ada": "no hex"}},
        {"salts": 5},
        {"sealed": "%"},
        {"sealed": 5},
    ],
)
def test_what_is_no_sealed_file_is_named_so(made: sealed.Sealed, changes: dict[str, t.Any]) -> None:
    with pytest.raises(PkiError, match="no sealed kubeconfig"):
        sealed.keepers(json.dumps({**json.loads(made.text), **changes}))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "kind: Config"])
def test_other_files(text: str) -> None:
    with pytest.raises(PkiError, match="no sealed kubeconfig"):
        sealed.keepers(text)


@pytest.mark.parametrize(
    ("words", "days", "reason"),
    [
        (WORDS, 0, "1 to 90 days"),
        (WORDS, 91, "1 to 90 days"),
        ({}, 30, "Nobody is named"),
        ({"ada": "short"}, 30, "passphrase of ada is shorter"),
        (dict.fromkeys(["ada", "bob"], WORDS["ada"]), 30, "same passphrase"),
    ],
)
def test_what_is_not_made(store: Store, words: dict[str, str], days: int, reason: str) -> None:
    with pytest.raises(PkiError, match=reason):
        make(store, words, days)
