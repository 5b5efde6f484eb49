# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys for backups, and the store itself as a bundle that can be recovered."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    PkiError,
    Store,
    generate_key_file,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.backup_keys import described, recover
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.handed_out import secrets
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key


@pytest.fixture
def own(store: Store, tmp_path: Path, key_file: Path) -> Store:
    """A copy of the store that a test may change."""
    shutil.copytree(store.path, tmp_path / "pki")
    return open_store(tmp_path / "pki", key_file)


OWN = ("lock", "recovery.bundle", "store.json.newest")
"""Files of a folder that are in no bundle."""


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_first_key_is_made_with_the_store(own: Store) -> None:
    assert own.backup_keys.versions() == [1]
    assert len(base64.b64decode(own.backup_keys.key(1))) == 32
    assert own.backup_keys.key(1).endswith("\n")


def test_a_store_of_an_earlier_release_gets_one(own: Store) -> None:
    (own.path / "secrets/backup-key-1.sealed").unlink()
    header = json.loads((own.path / "store.json").read_text())
    del header["backup_keys"]
    (own.path / "store.json").write_text(json.dumps(header))
    assert own.backup_keys.versions() == []
    assert own.ensure_cas() == ["backup-key"]
    assert own.backup_keys.versions() == [1]


def test_another_key_leaves_the_former_ones(own: Store, key_file: Path) -> None:
    first = own.backup_keys.key(1)
    assert own.backup_keys.add() == 2
    again = open_store(own.path, key_file)
    assert again.backup_keys.versions() == [1, 2]
    assert again.backup_keys.key(1) == first
    assert again.backup_keys.key(2) != first
    assert again.ensure_cas() == []


def test_a_lost_key_is_missed(own: Store) -> None:
    own.backup_keys.add()
    (own.path / "secrets/backup-key-1.sealed").unlink()
    with pytest.raises(PkiError, match="has lost its backup key 1"):
        own.ensure_cas()
    with pytest.raises(PkiError, match="has lost its backup key 1"):
        secrets(own, {"backup-key-1"})
    assert set(secrets(own, {"backup-key-2"})) == {"backup-key-2"}, "what is not asked for is not opened"


def test_what_hosts_get_is_named_after_its_version_and_content(own: Store) -> None:
    names = set(own.backup_keys.secrets())
    assert names == {
        "backup-key-1", "backup-writer-1", "backup-drill-1", f"recovery-{own.backup_keys.stamp()}",
    }  # fmt: skip
    assert secrets(own, names) == secrets(own, names), "the same text as long as nothing changed"
    own.backup_keys.add()
    assert set(own.backup_keys.secrets()) > {"backup-key-1", "backup-key-2"}
    assert not set(own.backup_keys.secrets()) & {name for name in names if name.startswith("recovery")}


@pytest.mark.parametrize("move", ["backup key", "trust", "identity", "key"])
def test_the_stamp_tells_what_a_recovery_needs(own: Store, move: str, tmp_path: Path) -> None:
    before, bundle = own.backup_keys.stamp(), own.backup_keys.bundle()
    match move:
        case "backup key":
            own.backup_keys.add()
        case "trust":
            own.move("etcd", "trust")
        case "identity":
            own.renew_site_uid()
        case "key":
            own.change_key(generate_key_file(tmp_path / "new.key"))
            assert (own.path / "recovery.bundle").read_text() == own.backup_keys.bundle() != bundle
    assert own.backup_keys.stamp() != before
    assert own.backup_keys.bundle() != bundle
    assert described(own.backup_keys.bundle())["stamp"] == own.backup_keys.stamp()


def test_the_end_of_a_change_of_authority_does_not_move_the_stamp(own: Store) -> None:
    for move in ("trust", "issue", "drop"):
        own.move("etcd", move)
    before = own.backup_keys.stamp()
    own.end_stage("etcd")
    assert own.backup_keys.stamp() == before


def test_a_store_comes_back_from_its_bundle(own: Store, key_file: Path, tmp_path: Path) -> None:
    own.backup_keys.add()
    wanted = {name: data for name, data in files(own.path).items() if name not in OWN}
    bundle = own.backup_keys.bundle()
    target = tmp_path / "recovered"
    assert recover(bundle, load_key(key_file), target) == sorted(wanted)
    assert {name: data for name, data in files(target).items() if name not in OWN} == wanted
    recovered = open_store(target, key_file)
    assert recovered.ensure_cas() == []
    assert recovered.backup_keys.key(2) == own.backup_keys.key(2)
    assert recovered.backup_keys.stamp() == own.backup_keys.stamp()
    for path in (target / "secrets").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_no_secret_is_readable_in_a_bundle(own: Store) -> None:
    bundle = own.backup_keys.bundle()
    inside = base64.b64decode(described(bundle)["sealed"])
    assert own.backup_keys.key(1).strip() not in bundle
    assert b"PRIVATE" not in inside
    assert b"store.json" not in inside


def test_bundles_that_are_refused(own: Store, tmp_path: Path, key_file: Path) -> None:
    bundle, key = own.backup_keys.bundle(), load_key(key_file)
    other = load_key(generate_key_file(tmp_path / "other.key"))
    with pytest.raises(PkiError, match="was encrypted with key"):
        recover(bundle, other, tmp_path / "one")
    content = json.loads(bundle)
    sealed = bytearray(base64.b64decode(content["sealed"]))
    sealed[-20] ^= 1
    content["sealed"] = base64.b64encode(sealed).decode()
    with pytest.raises(PkiError, match="was altered"):
        recover(json.dumps(content), key, tmp_path / "two")
    for text in ("", "{}", "[]", bundle[:-40], bundle.replace('"schema": 1', '"schema": 2')):
        with pytest.raises(PkiError, match="no recovery bundle"):
            recover(text, key, tmp_path / "three")
    assert not [name for name in ("one", "two", "three") if (tmp_path / name).exists()]
    (tmp_path / "four").mkdir()
    (tmp_path / "four/mine").touch()
    with pytest.raises(PkiError, match="is not empty"):
        recover(bundle, key, tmp_path / "four")
