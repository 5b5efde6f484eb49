# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Another key for the store: everything opens with it, nothing with the old one, after a kill too."""

from __future__ import annotations

import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import files
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    PkiError,
    Store,
    generate_key_file,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import folder as store_folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import header as store_header


@pytest.fixture
def copy(store: Store, tmp_path: Path) -> Path:
    shutil.copytree(store.path, tmp_path / "pki")
    return tmp_path / "pki"


@pytest.fixture
def new_key(tmp_path: Path) -> Path:
    return generate_key_file(tmp_path / "new.key")


def material(store: Store) -> tuple[str, ...]:
    keys = [store.ca(name).key_pem() for name in ("etcd", "kubernetes", "front-proxy")]
    return (*keys, store.service_account_key(), store.site_uid())


def test_the_same_secrets_under_another_key(copy: Path, key_file: Path, new_key: Path) -> None:
    store = open_store(copy, key_file)
    store.move("etcd", "trust")
    before, stale = material(store), {path.read_bytes() for path in (copy / "secrets").iterdir()}
    store.change_key(new_key)
    assert material(store) == before
    assert material(open_store(copy, new_key)) == before
    assert open_store(copy, new_key).ensure_cas() == []
    with pytest.raises(PkiError, match="Give the key that the store was made with"):
        open_store(copy, key_file).ensure_cas()
    assert not (copy / "secrets").exists()
    assert stale <= {path.read_bytes() for path in copy.glob("former/secrets/*")}, "put aside, not deleted"
    gone, left = open_store(copy, new_key).forget()
    assert (len(gone), left) == (len(stale), [])
    assert not stale & {path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert material(open_store(copy, new_key)) == before


def test_and_once_more(copy: Path, key_file: Path, new_key: Path, tmp_path: Path) -> None:
    open_store(copy, key_file).change_key(new_key)
    third = generate_key_file(tmp_path / "third.key")
    store = open_store(copy, new_key)
    before = material(store)
    store.change_key(third)
    assert material(open_store(copy, third)) == before
    assert [path.name for path in copy.glob("secrets*")] == ["secrets-3"]


def test_the_wrong_key_changes_nothing(copy: Path, new_key: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    wrong = open_store(copy, generate_key_file(tmp_path / "wrong.key"))
    with pytest.raises(PkiError):
        wrong.change_key(new_key)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("survived", range(12))
def test_a_kill_leaves_the_old_key_or_the_new_one(
    copy: Path, key_file: Path, new_key: Path, survived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    written = 0

    def write(*arguments: t.Any) -> None:
        nonlocal written
        if written == survived:
            raise Killed
        written += 1
        files.write_file(*arguments)

    before = material(open_store(copy, key_file))
    secrets = len(list((copy / "secrets").glob("*.sealed")))
    killed = False
    with monkeypatch.context() as patch:
        patch.setattr(store_folder, "write_file", write)
        patch.setattr(store_header, "write_file", write)
        try:
            open_store(copy, key_file).change_key(new_key)
        except Killed:
            killed = True
    # The secrets, the header and its copy.
    assert secrets >= 7 and killed is (survived < secrets + 2)
    key = key_file if survived < secrets + 1 else new_key
    assert open_store(copy, key).ensure_cas() == []
    assert material(open_store(copy, key)) == before
    assert len(list(copy.glob("secrets*"))) == 1
    if survived < secrets + 1:
        open_store(copy, key).change_key(new_key)
        assert material(open_store(copy, new_key)) == before


def test_a_folder_elsewhere_is_not_followed(copy: Path, key_file: Path) -> None:
    path = copy / "store.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2, "secrets": "../other"'))
    with pytest.raises(PkiError, match="damaged"):
        open_store(copy, key_file).ensure_cas()
