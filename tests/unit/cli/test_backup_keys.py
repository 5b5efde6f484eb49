# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan certs backup-key`` and ``recover``."""

from __future__ import annotations

import shutil
import types
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, generate_key_file, open_store

from ironspan.cli import inventory, main


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The PKI store of the site that the commands are about."""
    key = generate_key_file(tmp_path / "key")
    site = types.SimpleNamespace(pki_store=str(tmp_path / "pki"), pki_key_file=str(key))
    monkeypatch.setattr(inventory, "read_site", lambda given: site)
    made = open_store(tmp_path / "pki", key)
    made.ensure_cas()
    return made


def test_another_backup_key_and_a_store_that_was_lost(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["certs", "backup-key"]) == 0
    assert "backup key 2 is made" in capsys.readouterr().out
    assert store.backup_keys.versions() == [1, 2]
    (tmp_path / "bundle").write_text(store.backup_keys.bundle())
    assert main.main(["certs", "recover", str(tmp_path / "bundle")]) == 2
    assert "is not empty" in capsys.readouterr().err
    keys = [store.backup_keys.key(1), store.backup_keys.key(2), store.ca("etcd").key_pem()]
    shutil.rmtree(tmp_path / "pki")
    assert main.main(["certs", "backup-key"]) == 2
    assert "there is no PKI store" in capsys.readouterr().err
    assert main.main(["certs", "recover", str(tmp_path / "bundle")]) == 0
    found = open_store(tmp_path / "pki", tmp_path / "key")
    assert [found.backup_keys.key(1), found.backup_keys.key(2), found.ca("etcd").key_pem()] == keys


def test_a_bundle_that_is_not_there(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["certs", "recover", "/nowhere/bundle"]) == 2
    assert "/nowhere/bundle: No such file or directory" in capsys.readouterr().err
