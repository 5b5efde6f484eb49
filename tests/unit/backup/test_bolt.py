# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reading and extending bbolt databases, without etcd; tests/integration has etcd as their judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.backup.rebuild import boltpage
from ironspan.backup.rebuild.boltfile import BoltFile
from ironspan.program.errors import ProgramError

PAGE = 4096
_NO_FREELIST = 0xFFFFFFFFFFFFFFFF


def empty_database(path: Path, buckets: dict[bytes, bytes]) -> None:
    """Write a database with small buckets inside of the root, as etcd makes them; one row in each."""
    rows = []
    for name, key in sorted(buckets.items()):
        inline = boltpage.HEAD.pack(0, boltpage.LEAF_FLAG, 1, 0) + b"".join(boltpage.leaf([(0, key, b"v")]))
        rows.append((1, name, (0).to_bytes(8, "little") + (7).to_bytes(8, "little") + inline))
    root = boltpage.HEAD.pack(2, boltpage.LEAF_FLAG, len(rows), 0) + b"".join(boltpage.leaf(rows))
    pages = []
    for txid in (4, 5):
        body = boltpage.META.pack(0xED0CDAED, 2, PAGE, 0, 2, 0, _NO_FREELIST, 3, txid)
        head = boltpage.HEAD.pack(txid % 2, boltpage.META_FLAG, 0, 0)
        pages.append(head + body + boltpage.checksum(body).to_bytes(8, "little"))
    path.write_bytes(b"".join(page.ljust(PAGE, b"\0") for page in (*pages, root)))


values = st.lists(st.integers(0, 3 * PAGE).map(lambda size: b"x" * size), max_size=40)


@settings(max_examples=60)
@given(rounds=st.lists(values, max_size=4), few=st.integers(0, 3))
def test_rows_come_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[bytes]], few: int
) -> None:
    path = tmp_path_factory.mktemp("bolt") / "db"
    empty_database(path, {b"key": b"\0", b"lease": b"z", b"meta": b"m"})
    expected = [(b"\0", b"v")]
    for number, round_ in enumerate(rounds):
        with BoltFile(path) as file:
            tree = file.appender(b"key")
            for index, value in enumerate(round_ * 20):
                expected.append((b"%02d/%06d" % (number, index), value))
                tree.add(*expected[-1])
            other = file.new_tree()
            for index in range(few):
                other.add(b"%d" % index, b"")
            file.commit({b"key": tree.finish(), b"lease": other.finish()})
        with BoltFile(path) as file:
            assert list(file.rows(b"key")) == expected
            assert file.last_key(b"key") == expected[-1][0]
            assert list(file.rows(b"lease")) == [(b"%d" % index, b"") for index in range(few)]
            assert list(file.rows(b"meta")) == [(b"m", b"v")]
            assert path.stat().st_size == file.size


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "db"
    empty_database(path, {b"key": b"\0"})
    before = path.read_bytes()
    with BoltFile(path) as file:
        tree = file.appender(b"key")
        for index in range(1000):
            tree.add(b"%06d" % index, b"v" * 100)
        tree.finish()
    assert path.stat().st_size > len(before)
    assert path.read_bytes()[: len(before)] == before
    with BoltFile(path) as file:
        assert list(file.rows(b"key")) == [(b"\0", b"v")]


@pytest.mark.parametrize("damaged", [{0, PAGE}, {PAGE}])
def test_one_of_two_meta_pages_is_enough(tmp_path: Path, damaged: set[int]) -> None:
    path = tmp_path / "db"
    empty_database(path, {b"key": b"\0"})
    data = bytearray(path.read_bytes())
    for page in damaged:
        data[page + 40] ^= 1
    path.write_bytes(data)
    if len(damaged) == 2:
        with pytest.raises(ProgramError, match="neither of its two meta pages is whole"):
            BoltFile(path)
    else:
        with BoltFile(path) as file:
            assert file.last_key(b"key") == b"\0"


def test_damaged_pages_and_other_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "db"
    empty_database(path, {b"other": b"\0"})
    with BoltFile(path) as file, pytest.raises(ProgramError, match="has no bucket 'key'"):
        file.last_key(b"key")
    data = bytearray(path.read_bytes())
    data[2 * PAGE] ^= 1
    path.write_bytes(data)
    with pytest.raises(ProgramError, match="page 2 of the database is damaged"):
        BoltFile(path)
    path.write_bytes(b"no database")
    with pytest.raises(ProgramError, match="is no etcd database"):
        BoltFile(path)
