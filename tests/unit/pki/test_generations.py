# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changing an authority: the order of the stages, what the store then signs with and has trusted, kills."""

from __future__ import annotations

import base64
import json
import shutil
import typing as t
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import files as store_files
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    BACK,
    DROP,
    ISSUE,
    MOVES,
    ROTATABLE,
    TRUST,
    Generations,
    ended,
    moved,
    parsed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.handed_out import secrets
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

AUTHORITIES = ROTATABLE[:3]
MOVE = st.sampled_from([*MOVES, "end"])


@pytest.fixture
def own(store: Store, key_file: Path, tmp_path: Path) -> Store:
    shutil.copytree(store.path, tmp_path / "pki")
    return open_store(tmp_path / "pki", key_file)


def certificates_of(pem: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode())


@hypothesis.given(st.lists(MOVE, max_size=12))
def test_no_order_of_moves_signs_with_what_is_not_trusted_or_changes_two_things_at_once(
    moves: list[str],
) -> None:
    state = Generations()
    for move in moves:
        before = state
        try:
            state = ended(state) if move == "end" else moved("etcd", state, move, "now")
        except PkiError:
            assert state == before
        assert state.signing in state.trusted
        assert 1 <= len(state.trusted) <= 2
        assert not (state.signing != before.signing and state.trusted != before.trusted)
        # What signs from now on was trusted in the state before, and what is dropped no longer signed then.
        assert state.signing in before.trusted
        assert before.signing in state.trusted
        assert parsed(state.as_dict()) == state


@pytest.mark.parametrize(
    ("moves", "refused", "words"),
    [
        ([], ISSUE, "cannot go to the stage issue: it is in no stage. The stage after it is trust"),
        ([], DROP, "cannot go to the stage drop"),
        ([], BACK, "no way back"),
        ([TRUST], DROP, "The stage after it is issue"),
        ([TRUST, ISSUE], TRUST, "The stage after it is drop"),
        ([TRUST, ISSUE, DROP], TRUST, "It ends when all hosts were seen to have followed"),
        ([TRUST, ISSUE, DROP], BACK, "no way back"),
        ([TRUST], "elsewhere", "cannot go to the stage elsewhere"),
    ],
)
def test_the_wrong_order_is_refused(moves: list[str], refused: str, words: str) -> None:
    state = Generations()
    for move in moves:
        state = moved("etcd", state, move, "now")
    with pytest.raises(PkiError, match=words):
        moved("etcd", state, refused, "now")


def test_a_stage_entered_twice_is_entered_once() -> None:
    state = moved("etcd", Generations(), TRUST, "then")
    assert moved("etcd", state, TRUST, "now") is state


@pytest.mark.parametrize("name", AUTHORITIES)
def test_an_authority_is_changed_by_overlap(own: Store, name: str) -> None:
    old = own.ca(name)
    assert own.move(name, TRUST).trusted == (1, 2)
    trust = own.ca(name)
    assert trust.sha256 == old.sha256
    assert trust.key_pem() == old.key_pem()
    assert trust.signing_pem == old.signing_pem == old.certificate_pem
    first, second = certificates_of(trust.certificate_pem)
    assert first.subject != second.subject
    assert own.move(name, ISSUE).signing == 2
    issue = own.ca(name)
    assert issue.sha256 != old.sha256
    assert set(certificates_of(issue.certificate_pem)) == {first, second}
    assert certificates_of(issue.signing_pem) == [second]
    private = load_pem_private_key(issue.key_pem().encode(), None)
    assert private.public_key() == second.public_key()
    assert own.move(name, DROP).trusted == (2,)
    assert certificates_of(own.ca(name).certificate_pem) == [second]
    assert (own.path / "secrets" / f"{name}-key.sealed").exists()
    assert own.end_stage(name) == Generations(2, (2,), changes=2)
    assert not (own.path / "secrets" / f"{name}-key.sealed").exists()
    assert own.authority_certificates(name) == {1: first, 2: second}
    assert own.ensure_cas() == []
    assert own.move(name, TRUST).trusted == (2, 3)


def test_kubeadm_finds_the_authority_that_signs_first_and_etcd_the_same_file(own: Store) -> None:
    for name in AUTHORITIES:
        own.move(name, TRUST)
    before = {name: own.ca(name).certificate_pem for name in AUTHORITIES}
    for name in AUTHORITIES:
        own.move(name, ISSUE)
        signing = certificates_of(own.ca(name).signing_pem)[0]
        if name == "etcd":
            assert own.ca(name).certificate_pem == before[name]
        else:
            assert certificates_of(own.ca(name).certificate_pem)[0] == signing


def test_the_service_account_key_is_changed_by_overlap(own: Store) -> None:
    name = "service-account"
    old, old_secret = own.service_account_key(), own.secret_name(name)
    own.move(name, TRUST)
    assert own.service_account_key() == old
    assert own.service_account_public_key().count("BEGIN PUBLIC KEY") == 2
    own.move(name, ISSUE)
    new = own.service_account_key()
    assert new != old
    assert own.secret_name(name) != old_secret
    assert secrets(own, {own.secret_name(name)}) == {own.secret_name(name): new}
    # The API server signs with the private key and kubeadm reads the first public one beside it.
    first = load_pem_public_key(own.service_account_public_key().encode())
    assert first == load_pem_private_key(new.encode(), None).public_key()
    own.move(name, DROP)
    own.end_stage(name)
    assert own.service_account_public_key().count("BEGIN PUBLIC KEY") == 1
    assert own.ensure_cas() == []


def test_the_controller_is_let_in_throughout(own: Store) -> None:
    for move in ("", TRUST, ISSUE, DROP):
        if move:
            own.move("kubernetes", move)
        config = own.admin_kubeconfig("api.test:6443")
        user = config["users"][0]["user"]
        client = certificates_of(base64.b64decode(user["client-certificate-data"]).decode())[0]
        bundle = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        assert bundle == own.ca("kubernetes").certificate_pem
        client.verify_directly_issued_by(certificates_of(own.ca("kubernetes").signing_pem)[0])


@pytest.mark.parametrize("name", ROTATABLE)
def test_the_way_back_leaves_what_was(own: Store, name: str) -> None:
    def content() -> dict[str, bytes]:
        parts = (*own.path.glob("authorities/*"), *own.path.glob("public/*"), *own.path.glob("secrets*/*"))
        return {path.name: path.read_bytes() for path in parts}

    before = content()
    for move in (TRUST, ISSUE, BACK, BACK):
        own.move(name, move)
    own.end_stage(name)
    assert content() == before
    # The number is used again, with another key.
    own.move(name, TRUST)
    assert own.ensure_cas() == []


@pytest.mark.parametrize("name", ROTATABLE)
@pytest.mark.parametrize("survived", range(5))
def test_a_kill_between_any_two_files_leaves_a_store_that_goes_on(
    own: Store, name: str, survived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    written = 0
    real = store_files.write_file

    def write(*arguments: t.Any) -> None:
        nonlocal written
        if written == survived:
            raise Killed
        written += 1
        real(*arguments)

    package = "ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki"
    with monkeypatch.context() as patch:
        for module in ("folder", "header"):
            patch.setattr(f"{package}.{module}.write_file", write)
        try:
            own.move(name, TRUST)
        except Killed:
            # Key, certificate, store.json and its copy.
            assert (own.generations(name) == Generations()) is (survived < 3)
    assert own.ensure_cas() == []
    assert own.move(name, TRUST).trusted == (1, 2)
    own.move(name, ISSUE)
    assert own.ensure_cas() == []


@pytest.mark.parametrize(
    "generations",
    [
        {"etcd": 5},
        {"etcd": {"signing": 1}},
        {"etcd": {"signing": 1, "trusted": [1], "stage": "", "changes": "often"}},
        {"etcd": {"signing": 3, "trusted": [1, 2], "stage": "trust", "changes": 0}},
        {"etcd": {"signing": 1, "trusted": [2, 1], "stage": "trust", "changes": 0}},
        {"etcd": {"signing": True, "trusted": [True], "stage": "", "changes": 0}},
        {"etcd": {"signing": 1, "trusted": [1], "stage": "other", "changes": 0}},
        [],
    ],
)
def test_a_damaged_header_is_refused(own: Store, generations: t.Any) -> None:
    path = own.path / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2, "generations": generations}))
    with pytest.raises(PkiError, match=r"store\.json is damaged"):
        own.ca("etcd")


def test_an_older_version_refuses_a_changed_store(own: Store) -> None:
    assert json.loads((own.path / "store.json").read_text())["schema"] == 1
    own.move("etcd", TRUST)
    assert json.loads((own.path / "store.json").read_text())["schema"] == 2
