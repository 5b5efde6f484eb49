# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The PKI store's sealed copy beside the backups: written once for each content."""

from __future__ import annotations

import collections.abc
import json
import pathlib

import pytest

from ironspan.backup import main, recovery
from ironspan.backup.file_store import FileStore
from ironspan.backup.names import Names
from ironspan.program.errors import AlreadyThere, ProgramError
from tests.support.backup_proof import proof, proof_settings

NAMES = Names("lab", proof())


def bundle(folder: pathlib.Path, stamp: str, sealed: str = "AAAA") -> pathlib.Path:
    path = folder / "recovery.bundle"
    path.write_text(
        json.dumps({"format": "ironspan-recovery", "schema": 1, "stamp": stamp, "sealed": sealed})
    )
    return path


@pytest.fixture
def store(tmp_path: pathlib.Path) -> FileStore:
    return FileStore(tmp_path / "store")


def names(store: FileStore) -> list[str]:
    return [item.name for item in store.list(NAMES.recoveries)]


def test_only_another_content_is_written(store: FileStore, tmp_path: pathlib.Path) -> None:
    assert recovery.keep(store, NAMES, bundle(tmp_path, "one"), 1000) == "lab/recovery/1000.bundle"
    assert recovery.keep(store, NAMES, bundle(tmp_path, "one", "BBBB"), 2000) == ""
    assert recovery.keep(store, NAMES, bundle(tmp_path, "two"), 3000) == "lab/recovery/3000.bundle"
    assert recovery.keep(store, NAMES, bundle(tmp_path, "one"), 4000) == "lab/recovery/4000.bundle"
    assert len(names(store)) == 3
    kept = json.loads(b"".join(store.read("lab/recovery/4000.bundle")))
    assert json.loads(bundle(tmp_path, "one").read_bytes()).items() < kept.items()


@pytest.mark.parametrize("now", [999, 1000, 10])
def test_the_newest_one_is_the_last_whatever_the_clock_says(
    store: FileStore, tmp_path: pathlib.Path, now: int
) -> None:
    recovery.keep(store, NAMES, bundle(tmp_path, "one"), 1000)
    recovery.keep(store, NAMES, bundle(tmp_path, "two"), now)
    assert names(store)[-1] == "lab/recovery/1001.bundle"
    assert recovery.keep(store, NAMES, bundle(tmp_path, "two"), now) == ""


class Rival(FileStore):
    """Another one keeps its bundle between the look and the writing, as often as it has one."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.rivals: list[bytes] = []

    def put(self, name: str, chunks: collections.abc.Iterable[bytes]) -> None:
        if self.rivals:
            super().put(name, [recovery.signed(self.rivals.pop(), name, NAMES.proof)])
        super().put(name, chunks)


@pytest.mark.parametrize(
    ("rivals", "kept", "count"),
    [
        (["one"], "", 1),
        (["two"], "lab/recovery/1001.bundle", 2),
        (["two"] * 4, "lab/recovery/1004.bundle", 5),
    ],
)
def test_another_one_within_the_same_second_is_no_error(
    tmp_path: pathlib.Path, rivals: list[str], kept: str, count: int
) -> None:
    store = Rival(tmp_path / "store")
    store.rivals.extend(bundle(tmp_path, stamp).read_bytes() for stamp in rivals)
    assert recovery.keep(store, NAMES, bundle(tmp_path, "one"), 1000) == kept
    assert len(names(store)) == count


def test_a_store_that_takes_no_name_is_an_error(tmp_path: pathlib.Path) -> None:
    store = Rival(tmp_path / "store")
    store.rivals.extend(bundle(tmp_path, "two").read_bytes() for _ in range(5))
    with pytest.raises(AlreadyThere):
        recovery.keep(store, NAMES, bundle(tmp_path, "one"), 1000)


def test_a_damaged_one_in_the_store_is_followed_by_a_whole_one(
    store: FileStore, tmp_path: pathlib.Path
) -> None:
    store.put("lab/recovery/1000.bundle", [b"half a bun"])
    assert recovery.keep(store, NAMES, bundle(tmp_path, "one"), 2000) == "lab/recovery/2000.bundle"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other", "stamp": "x"}', "\x80"])
def test_what_is_no_bundle_is_not_written(store: FileStore, tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ProgramError, match="is no recovery bundle"):
        recovery.keep(store, NAMES, tmp_path / "file")
    with pytest.raises(ProgramError, match="No such file"):
        recovery.keep(store, NAMES, tmp_path / "missing")
    assert not names(store)


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        "site": "lab",
        "host": "az-1",
        "etcd": {
            "endpoints": ["http://127.0.0.1:1"], "local": "http://127.0.0.1:1", "data_dir": "/var/lib/etcd/x",
        },
        "stores": [{"kind": "file", "path": str(tmp_path / "store")}],
        "keys": {"kind": "file", "folder": str(tmp_path)},
        "proof": proof_settings(tmp_path / "signing"),
    }  # fmt: skip
    (tmp_path / "settings").write_text(json.dumps(settings))
    command = [
        "put-recovery",
        str(bundle(tmp_path, "one")),
        "--settings",
        str(tmp_path / "settings"),
        "--json",
    ]
    assert main.main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["stored"] is True
    assert first["name"].startswith("lab/recovery/")
    assert main.main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"stored": False, "name": ""}
