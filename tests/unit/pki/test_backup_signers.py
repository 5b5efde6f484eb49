# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys that sign backups: made with the store, never replaced, and checked against what store.json says."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    PkiError,
    Store,
    generate_key_file,
    open_store,
)

from ironspan.backup.proof import DRILL, WRITER, Proof


@pytest.fixture
def own(tmp_path: Path) -> Store:
    made = open_store(tmp_path / "pki", generate_key_file(tmp_path / "key"))
    made.ensure_cas()
    return made


def proof_of(store: Store, *parts: str) -> Proof:
    """Return what a host makes of what it is sent."""
    signers = store.backup_keys.signers
    trusted = {
        part: {str(version): base64.b64decode(key) for version, key in enumerate(keys, 1)}
        for part, keys in signers.public().items()
    }
    private = {part: signers.key(part, len(trusted[part])) for part in parts}
    return Proof(trusted, {part: base64.b64decode(key.strip()) for part, key in private.items()})


def test_what_a_member_signs_everybody_verifies(own: Store) -> None:
    member, reader = proof_of(own, WRITER, DRILL), proof_of(own)
    signature = member.sign(WRITER, "epoch", "n", b"c")
    assert member.signer(WRITER) == "1"
    assert reader.verifies(WRITER, "1", signature, "epoch", "n", b"c")
    assert not reader.verifies(DRILL, "1", signature, "epoch", "n", b"c")


def test_after_another_key_the_former_verifies_and_the_new_one_signs(own: Store) -> None:
    before = proof_of(own, WRITER).sign(WRITER, "epoch", "n", b"c")
    stamp = own.backup_keys.stamp()
    own.backup_keys.add()
    after = proof_of(own, WRITER)
    assert after.signer(WRITER) == "2"
    assert after.verifies(WRITER, "1", before, "epoch", "n", b"c")
    assert own.backup_keys.stamp() != stamp
    assert set(own.backup_keys.secrets()) >= {"backup-writer-2", "backup-drill-2"}
    assert "backup-writer-1" not in own.backup_keys.secrets(), "what signs no more is sent nowhere"


def test_a_store_of_an_earlier_release_gets_them(own: Store) -> None:
    header = json.loads((own.path / "store.json").read_text())
    del header["backup_signers"]
    (own.path / "store.json").write_text(json.dumps(header))
    assert own.backup_keys.signers.public() == {"writer": [], "drill": []}
    assert own.ensure_cas() == ["backup-key"]
    assert own.ensure_cas() == []
    assert proof_of(own, WRITER).signer(WRITER) == "1"


@pytest.mark.parametrize("part", [WRITER, DRILL])
def test_a_public_key_that_was_replaced_is_refused(own: Store, part: str, tmp_path: Path) -> None:
    header = json.loads((own.path / "store.json").read_text())
    header["backup_signers"][part] = [base64.b64encode(bytes(range(32))).decode()]
    (own.path / "store.json").write_text(json.dumps(header))
    with pytest.raises(PkiError, match=f"backup-{part}-1 .* is not the one that store.json names"):
        own.ensure_cas()


def test_a_lost_key_is_missed_and_not_made_anew(own: Store) -> None:
    (own.path / "secrets/backup-writer-1.sealed").unlink()
    with pytest.raises(PkiError, match="has lost its key backup-writer-1"):
        own.ensure_cas()


@pytest.mark.parametrize("damage", [{"writer": ["x"]}, {"writer": 5}, [], {"drill": ["AAAA"]}])
def test_damage_is_named(own: Store, damage: object) -> None:
    header = json.loads((own.path / "store.json").read_text())
    header["backup_signers"] = damage
    (own.path / "store.json").write_text(json.dumps(header))
    with pytest.raises(PkiError, match=r"store\.json is damaged"):
        own.ensure_cas()
