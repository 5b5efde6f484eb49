# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Stages of the encryption of secrets: what reads and writes at every moment; keys that are never lost."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption import ended, moved
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    BACK,
    DROP,
    IDENTITY,
    KMS,
    MOVES,
    NEXT,
    READ,
    RECALL,
    SECRETBOX,
    WRITE,
    Encryption,
    begun,
    parsed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-22T12:00:00Z"


@pytest.fixture
def own(store: Store, tmp_path: Path, key_file: Path) -> Store:
    """A store that a test may change."""
    shutil.copytree(store.path, tmp_path / "pki")
    return open_store(tmp_path / "pki", key_file)


def test_the_whole_way_to_another_key() -> None:
    state, seen = Encryption(), []
    for move, kind in (
        (READ, SECRETBOX),
        (WRITE, ""),
        (DROP, ""),
        ("", ""),
        (READ, SECRETBOX),
        (WRITE, ""),
        (DROP, ""),
    ):
        state = moved(state, move, kind, NOW) if move else ended(state)
        seen.append(state.providers)
    assert seen == [
        ("identity", "secretbox-1"),
        ("secretbox-1", "identity"),
        ("secretbox-1",),
        ("secretbox-1",),
        ("secretbox-1", "secretbox-2"),
        ("secretbox-2", "secretbox-1"),
        ("secretbox-2",),
    ]
    assert state.former == ("identity", "secretbox-1")
    assert not Encryption().used and state.used


@pytest.mark.parametrize(
    ("state", "move", "kind", "providers", "stage"),
    [
        (begun(SECRETBOX), READ, KMS, ("secretbox-1", "kms-1"), READ),
        (begun(KMS), READ, SECRETBOX, ("kms-1", "secretbox-1"), READ),
        (begun(KMS), READ, IDENTITY, ("kms-1", "identity"), READ),
        (Encryption(("a-1", "b-1"), WRITE, NOW), BACK, "", ("b-1", "a-1"), READ),
        (Encryption(("a-1", "b-1"), READ, NOW), BACK, "", ("a-1",), DROP),
        (Encryption(("a-2",), "", "", ("a-1", IDENTITY)), RECALL, "", ("a-2", "a-1", IDENTITY), RECALL),
        (Encryption(("a-2", "a-1"), RECALL, NOW), DROP, "", ("a-2",), DROP),
        (Encryption(("kms-1",), "", "", ("secretbox-3",)), READ, SECRETBOX, ("kms-1", "secretbox-4"), READ),
        (Encryption(("secretbox-1",), "", "", (IDENTITY,)), READ, IDENTITY, ("secretbox-1", IDENTITY), READ),
    ],
)
def test_moves(state: Encryption, move: str, kind: str, providers: tuple[str, ...], stage: str) -> None:
    after = moved(state, move, kind, NOW)
    assert (after.providers, after.stage) == (providers, stage)
    assert set(after.known) >= set(state.known)


@pytest.mark.parametrize(
    ("state", "move", "kind", "message"),
    [
        (Encryption(), WRITE, "", "in no stage"),
        (Encryption(), DROP, "", "in no stage"),
        (Encryption(), READ, IDENTITY, "in clear already"),
        (begun(KMS), READ, KMS, "kms-1 already"),
        (Encryption(("a-1",), DROP, NOW), READ, SECRETBOX, f"stage drop since {NOW}"),
        (Encryption(("a-1",), DROP, NOW), BACK, "", "no way back"),
        (Encryption(("a-2", "a-1"), RECALL, NOW), BACK, "", "no way back"),
        (begun(SECRETBOX), RECALL, "", "nothing to recall"),
        (Encryption(("a-1", "b-1"), READ, NOW), RECALL, "", "stage read"),
        (Encryption(("a-1", "b-1"), READ, NOW), DROP, "", "stage read"),
    ],
)
def test_moves_in_another_order_are_refused(state: Encryption, move: str, kind: str, message: str) -> None:
    with pytest.raises(PkiError, match=message):
        moved(state, move, kind, NOW)


@pytest.mark.parametrize("state", [Encryption(("a-2",), "", "", ("a-1",)), Encryption(("a-2",), DROP, NOW)])
def test_a_drop_that_was_killed_at_its_end_is_run_again(state: Encryption) -> None:
    assert moved(state, DROP, "", "later") == state


@given(st.lists(st.tuples(st.sampled_from([*MOVES, "end"]), st.sampled_from([IDENTITY, SECRETBOX, KMS]))))
def test_who_writes_was_read_before_and_is_read_after(steps: list[tuple[str, str]]) -> None:
    """Whatever the order of moves: an API server that is one stage behind reads what others write."""
    state = Encryption()
    for move, kind in steps:
        try:
            after = ended(state) if move == "end" else moved(state, move, kind, NOW)
        except PkiError:
            continue
        assert after.writes in state.providers
        assert state.writes in after.providers
        assert set(after.known) >= set(state.known)
        assert parsed(json.loads(json.dumps(after.as_dict()))) == after
        assert after.stage in (*NEXT, DROP)
        state = after


@pytest.mark.parametrize(
    "damage",
    [
        {"providers": []},
        {"providers": ["secretbox-0"]},
        {"providers": ["secretbox-1", "secretbox-1"]},
        {"providers": ["secretbox-1"], "former": ["secretbox-1"]},
        {"stage": "later"},
        {"providers": ["a:b"]},
    ],
)
def test_a_damaged_state_is_refused(own: Store, damage: dict[str, object]) -> None:
    own.encryption.begin(SECRETBOX)
    path = own.path / "store.json"
    header = json.loads(path.read_text())
    header["encryption"].update(damage)
    path.write_text(json.dumps(header))
    with pytest.raises(PkiError, match=r"store\.json is damaged"):
        own.encryption.state()


def test_a_store_without_encryption_gives_nothing_and_stays_as_it_is(own: Store) -> None:
    before = (own.path / "store.json").read_text()
    stamp = own.backup_keys.stamp()
    assert not own.encryption.state().used
    assert not own.encryption.begin(IDENTITY).used
    assert own.encryption.secrets() == {}
    assert ((own.path / "store.json").read_text(), own.backup_keys.stamp()) == (before, stamp)


def test_a_configuration_has_the_providers_in_their_order_with_their_keys(own: Store) -> None:
    own.encryption.begin(SECRETBOX)
    state = own.encryption.move(READ, KMS)
    found = own.encryption.secrets()
    assert set(found) == {state.secret_name, "encryption-cache-key"}
    (entry,) = json.loads(found[state.secret_name]())["resources"]
    assert entry["resources"] == ["secrets"]
    first, second = entry["providers"]
    (key,) = first["secretbox"]["keys"]
    assert (key["name"], len(base64.b64decode(key["secret"]))) == ("secretbox-1", 32)
    assert second == {
        "kms": {
            "apiVersion": "v2",
            "name": "kms-1",
            "endpoint": "unix:///run/ironspan-kms/kms.sock",
            "timeout": "10s",
        }
    }


def test_keys_are_kept_after_they_were_dropped(own: Store) -> None:
    own.encryption.begin(SECRETBOX)
    old = own.encryption.key("secretbox-1")
    for move in (READ, WRITE, DROP):
        own.encryption.move(move, SECRETBOX)
    own.encryption.end_stage()
    assert old not in own.encryption.configuration()
    own.encryption.move(RECALL, "")
    assert own.encryption.key("secretbox-1") == old
    assert old in own.encryption.configuration()


def test_a_lost_key_is_missed_and_not_made_anew(own: Store) -> None:
    own.encryption.begin(SECRETBOX)
    (own.path / "secrets/encryption-key-secretbox-1.sealed").unlink()
    with pytest.raises(PkiError, match="has lost encryption-key-secretbox-1"):
        own.encryption.move(READ, SECRETBOX)
    assert own.encryption.state() == begun(SECRETBOX)
    with pytest.raises(PkiError, match="has lost encryption-key-secretbox-1"):
        own.ensure_cas()


def test_every_change_is_in_the_bundle_for_recoveries(own: Store, key_file: Path, tmp_path: Path) -> None:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import backup_keys
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key

    stamps = [own.backup_keys.stamp()]
    own.encryption.begin(SECRETBOX)
    stamps.append(own.backup_keys.stamp())
    for move in (READ, WRITE, DROP):
        own.encryption.move(move, SECRETBOX)
        stamps.append(own.backup_keys.stamp())
    assert len(set(stamps)) == len(stamps)
    backup_keys.recover(own.backup_keys.bundle(), load_key(key_file), tmp_path / "again")
    again = open_store(tmp_path / "again", key_file)
    assert again.encryption.state() == own.encryption.state()
    for name in ("secretbox-1", "secretbox-2"):
        assert again.encryption.key(name) == own.encryption.key(name)


def test_versions_that_would_forget_the_keys_refuse_the_store(own: Store) -> None:
    own.encryption.begin(SECRETBOX)
    own.move("etcd", "trust")
    assert json.loads((own.path / "store.json").read_text())["schema"] == 3


def test_keys_stay_when_the_store_gets_another_key(own: Store, tmp_path: Path) -> None:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file

    own.encryption.begin(SECRETBOX)
    key = own.encryption.key("secretbox-1")
    own.change_key(generate_key_file(tmp_path / "other.key"))
    assert own.encryption.key("secretbox-1") == key
    assert json.loads((own.path / "store.json").read_text())["schema"] == 3


@pytest.mark.parametrize("killed_at", ["seal", "change_header"])
def test_a_kill_leaves_the_old_stage_and_the_next_run_goes_on(
    own: Store, key_file: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    own.encryption.begin(SECRETBOX)
    before = own.encryption.state()
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(own.encryption._folder, killed_at, killed)
        with pytest.raises(KeyboardInterrupt):
            own.encryption.move(READ, SECRETBOX)
    again = open_store(own.path, key_file)
    again.ensure_cas()
    assert again.encryption.state() == before
    assert again.encryption.move(READ, SECRETBOX).providers == ("secretbox-1", "secretbox-2")
    assert len({again.encryption.key(name) for name in ("secretbox-1", "secretbox-2")}) == 2
