# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The spool loses nothing that it took, gives it in order, and survives a kill at any byte."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.backup.log import spool as module
from ironspan.backup.log.batch import Batch, Cutter
from ironspan.backup.log.spool import Spool, SpoolError
from ironspan.backup.records import Event, Record, Revision

LIMIT = 1 << 20


def revision(number: int, *, more: bool = False, size: int = 10) -> Revision:
    return Revision(number, number, (Event(True, b"k", os.urandom(size), 1, number),), more=more)


def batch(first: int, count: int = 1, size: int = 10) -> Batch:
    return next(iter(Cutter(first).cut([revision(first + at, size=size) for at in range(count)])))


def revisions(batches: list[Batch]) -> list[int]:
    return [record.revision for one in batches for record in one.records if isinstance(record, Revision)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def filled(folder: Path, count: int = 5) -> Spool:
    spool = Spool(folder, LIMIT)
    spool.recover(9)
    for number in range(count):
        spool.append(batch(10 + number))
    return spool


def test_first_in_first_out(folder: Path) -> None:
    spool = filled(folder)
    assert revisions(spool.peek(1)) == [10]
    assert revisions(spool.peek(LIMIT)) == [10, 11, 12, 13, 14]
    spool.drop(2)
    assert revisions(spool.peek(LIMIT)) == [12, 13, 14]
    spool.append(batch(15))
    spool.drop(4)
    assert (len(spool), spool.bytes, list(folder.iterdir())) == (0, 0, [])


def test_a_new_run_goes_on_with_it(folder: Path) -> None:
    filled(folder)
    spool = Spool(folder, LIMIT)
    assert spool.recover(9) == 15
    assert revisions(spool.peek(LIMIT)) == [10, 11, 12, 13, 14]
    spool.append(batch(15))
    assert revisions(spool.peek(LIMIT)) == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("stored", "kept", "following"),
    [(9, [10, 11, 12], 13), (11, [12], 13), (12, [], 13), (40, [], 41), (8, [], 9)],
    ids=["all", "some are stored", "all are stored", "others wrote on", "a hole before it"],
)
def test_what_a_new_run_keeps(folder: Path, stored: int, kept: list[int], following: int) -> None:
    filled(folder, 3)
    spool = Spool(folder, LIMIT)
    assert spool.recover(stored) == following
    assert revisions(spool.peek(LIMIT)) == kept
    assert kept or not list(folder.iterdir())


def test_a_batch_that_is_stored_in_part_is_given_without_that_part(folder: Path) -> None:
    Spool(folder, LIMIT).append(batch(10, 5))
    spool = Spool(folder, LIMIT)
    assert spool.recover(12) == 15
    assert revisions(spool.peek(LIMIT)) == [13, 14]
    assert spool.peek(LIMIT)[0].first == 13


def parts(first: int) -> list[Batch]:
    records: list[Record] = [
        revision(first),
        *(revision(first + 1, more=True) for _ in range(2)),
        revision(first + 1),
        revision(first + 2),
    ]
    return list(Cutter(first).cut(records))


def test_a_transaction_in_parts_is_kept_whole_or_not_at_all(folder: Path) -> None:
    batches = parts(10)
    assert [(b.first, b.last, b.begins_inside, b.ends_inside) for b in batches] == [
        (10, 10, False, False),
        (11, 10, False, True),
        (11, 10, True, True),
        (11, 11, True, False),
        (12, 12, False, False),
    ]
    for count, stored, following, kept in [
        (5, 9, 13, [10, 11, 11, 11, 12]),
        (3, 9, 11, [10]),
        (5, 10, 13, [11, 11, 11, 12]),
        (5, 11, 13, [12]),
    ]:
        place = folder / f"{count}-{stored}"
        spool = Spool(place, LIMIT)
        for one in batches[:count]:
            spool.append(one)
        again = Spool(place, LIMIT)
        assert again.recover(stored) == following
        assert revisions(again.peek(LIMIT)) == kept


def test_the_rest_of_a_transaction_is_of_no_use(folder: Path) -> None:
    spool = Spool(folder, LIMIT)
    for one in parts(10)[2:]:
        spool.append(one)
    assert Spool(folder, LIMIT).recover(10) == 11


@settings(max_examples=60)
@given(st.data())
def test_a_kill_at_any_byte_loses_nothing_that_was_taken_and_reorders_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FILE_BYTES", 300)
        folder = Path(name) / "spool"
        spool = Spool(folder, LIMIT)
        stored, following = 9, spool.recover(9)
        for _ in range(data.draw(st.integers(1, 12))):
            action = data.draw(st.sampled_from(["append", "append", "drop", "kill"]))
            if action == "append":
                count = data.draw(st.integers(1, 3))
                spool.append(batch(following, count))
                following += count
            elif action == "drop" and len(spool):
                count = data.draw(st.integers(1, len(spool)))
                stored = spool.peek(LIMIT)[:count][-1].last
                spool.drop(count)
            else:
                _tear(spool, data.draw(st.integers(1, 200)))
                spool = Spool(folder, LIMIT)
                assert spool.recover(stored) == following
                assert sum(path.stat().st_size for path in folder.glob("*")) == spool.bytes
            assert revisions(spool.peek(LIMIT)) == list(range(stored + 1, following))


def _tear(spool: Spool, size: int) -> None:
    """Leave behind what a kill in the middle of the next append leaves."""
    before = {path: path.stat().st_size for path in spool.folder.glob("*")}
    spool.append(batch(1_000_000, size=200))
    for path in spool.folder.glob("*"):
        kept = before.get(path, 0)
        if path.stat().st_size > kept:
            os.truncate(path, min(kept + size, path.stat().st_size - 1))


def test_files_go_as_their_batches_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 200)
    spool = filled(folder, 12)
    counts = []
    while len(spool):
        counts.append(len(list(folder.iterdir())))
        assert spool.bytes >= sum(path.stat().st_size for path in folder.iterdir())
        spool.drop(1)
    assert counts[0] >= 3
    assert counts == sorted(counts, reverse=True)
    assert (counts[-1], spool.bytes, list(folder.iterdir())) == (1, 0, [])


def test_a_flipped_bit_ends_what_is_kept(folder: Path) -> None:
    spool = filled(folder)
    path = next(folder.iterdir())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SpoolError, match="not what was written"):
        spool.peek(LIMIT)
    again = Spool(folder, LIMIT)
    following = again.recover(9)
    assert revisions(again.peek(LIMIT)) == list(range(10, following))
    assert 10 < following < 15


def test_the_limit_is_kept(folder: Path) -> None:
    spool = Spool(folder, 400)
    with pytest.raises(SpoolError, match="limit of 400 bytes"):
        for number in range(20):
            spool.append(batch(10 + number))
    taken = len(spool)
    assert 1 < taken < 10
    assert sum(path.stat().st_size for path in folder.iterdir()) == spool.bytes <= 400
    spool.drop(taken)
    spool.append(batch(10 + taken))


def test_only_the_owner_can_read_it(folder: Path) -> None:
    filled(folder, 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Errors of the next writes; a negative one fails after half of the bytes."""
    errors: list[int] = []
    write = os.write

    def failing_write(descriptor: int, data: bytes) -> int:
        code = errors.pop(0) if errors else 0
        if code < 0:
            write(descriptor, data[: len(data) // 2])
        if code:
            raise OSError(abs(code), os.strerror(abs(code)))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", failing_write)
    yield errors


@pytest.mark.parametrize("code", [errno.ENOSPC, -errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_said_and_leaves_the_rest_whole(
    folder: Path, failing: list[int], code: int
) -> None:
    spool = filled(folder, 2)
    failing.append(code)
    with pytest.raises(SpoolError, match=os.strerror(abs(code))):
        spool.append(batch(12))
    assert sum(path.stat().st_size for path in folder.iterdir()) == spool.bytes
    spool.append(batch(12))
    assert revisions(spool.peek(LIMIT)) == [10, 11, 12]
    assert Spool(folder, LIMIT).recover(9) == 13


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="Cannot write the spool"):
        Spool(tmp_path / "file" / "spool", LIMIT).append(batch(1))
