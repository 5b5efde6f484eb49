# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fetching a snapshot from a store that breaks off, lies, or ends."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.backup import crypto
from ironspan.backup.errors import ChainError
from ironspan.backup.file_store import FileStore
from ironspan.backup.manifest import Manifest
from ironspan.backup.rebuild import fetch as module
from ironspan.backup.rebuild.fetch import ATTEMPTS, fetch
from ironspan.program.errors import KeyMissing, ServiceError

NAME = "test/snapshot/data"
PART = 1 << 10
"""Of the tests: a thousandth of the real ones."""


class Unreliable:
    """A store whose reads do what a list says, one after the other: break off, or fail."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self.faults: list[ServiceError] = []
        self.reads: list[int] = []

    def read(self, name: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.reads.append(offset)
        data = b"".join(self._store.read(name, offset, length))
        if self.faults:
            yield data[: len(data) // 2]
            raise self.faults.pop()
        yield data


class Stored(t.NamedTuple):
    store: t.Any
    keys: crypto.FileKeys
    manifest: Manifest
    plain: bytes
    path: Path


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    monkeypatch.setattr(crypto, "PART_BYTES", PART)
    monkeypatch.setattr(module, "_PART", PART + crypto.TAG_BYTES)
    monkeypatch.setattr(module, "READERS", 1)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "1.key").write_bytes(base64.b64encode(os.urandom(32)))
    (tmp_path / "store").mkdir()
    keys, inner = crypto.FileKeys(tmp_path / "keys"), FileStore(tmp_path / "store", "")
    plain, data_key = os.urandom(20 * PART + 32), crypto.new_data_key()
    version, wrapped = keys.wrap(data_key)
    inner.put(NAME, crypto.encrypt([plain], data_key, NAME))
    digest, parts = hashlib.sha256(plain).hexdigest(), crypto.parts(len(plain))
    manifest = Manifest(
        "test", 1, "c", 5, 0, 1, "3.6.14", "3.6.0", 1, len(plain), digest, parts, version, wrapped, {}
    )  # fmt: skip
    return Stored(Unreliable(inner), keys, manifest, plain, tmp_path / "file")


def bring(stored: Stored) -> bytes:
    fetch(stored.store, stored.keys, NAME, stored.manifest, stored.path)
    return stored.path.read_bytes()


def test_the_plain_file_comes_out(stored: Stored) -> None:
    assert bring(stored) == stored.plain
    assert stored.path.stat().st_mode & 0o777 == 0o600


def test_reads_that_break_off_are_repeated(stored: Stored) -> None:
    stored.store.faults = [ServiceError("reset", retryable=True) for _ in range(ATTEMPTS - 1)]
    assert bring(stored) == stored.plain


def test_a_store_that_stays_broken_is_named_and_what_came_is_kept(stored: Stored) -> None:
    first = bring(stored)
    assert len(stored.store.reads) == 7
    stored.path.write_bytes(first[: 9 * PART + 77])
    stored.store.reads.clear()
    stored.store.faults = [ServiceError("gone", retryable=True) for _ in range(ATTEMPTS)]
    with pytest.raises(ServiceError, match="gone"):
        bring(stored)
    assert stored.path.read_bytes() == first[: 9 * PART]
    stored.store.reads.clear()
    assert bring(stored) == stored.plain
    # What was there is not read again.
    assert stored.store.reads[0] == 9 * (PART + crypto.TAG_BYTES)


def test_no_second_try_where_none_helps(stored: Stored) -> None:
    stored.store.faults = [ServiceError("forbidden")]
    with pytest.raises(ServiceError, match="forbidden"):
        bring(stored)
    assert len(stored.store.reads) <= 2


@pytest.mark.parametrize("offset", [0, 500, 20 * (PART + crypto.TAG_BYTES), -1])
def test_a_flipped_byte_is_named(stored: Stored, tmp_path: Path, offset: int) -> None:
    path = tmp_path / "store" / NAME
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    with pytest.raises(ChainError, match=r"test/snapshot/data: byte \d+ and beyond are not what was written"):
        bring(stored)


def test_what_an_earlier_run_left_is_not_believed(stored: Stored) -> None:
    stored.path.write_bytes(b"x" * 3 * PART)
    assert bring(stored) == stored.plain


def test_another_file_than_the_manifests_is_named(stored: Stored) -> None:
    other = stored._replace(manifest=dataclasses.replace(stored.manifest, sha256="0" * 64))
    with pytest.raises(ChainError, match="another SHA-256 than its manifest says"):
        bring(other)
    assert not stored.path.exists()


def test_without_the_key_nothing_is_read(stored: Stored, tmp_path: Path) -> None:
    (tmp_path / "keys" / "1.key").unlink()
    with pytest.raises(KeyMissing):
        bring(stored)
    assert stored.store.reads == []
