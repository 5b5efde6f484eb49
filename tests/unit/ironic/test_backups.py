# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Backups of Ironic's database: whole, unreadable, kept; what was altered never comes back."""

from __future__ import annotations

import base64
import os
import sqlite3
import stat
import threading
import typing as t
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ironspan.backup.crypto import FileKeys
from ironspan.ironic import backups
from ironspan.ironic.database import Sqlite
from ironspan.program.errors import KeyMissing, ProgramError

SECRET = "the-password-of-a-bmc"


class Texts:
    """A database whose copy is some bytes."""

    kind = "sqlite"

    def __init__(self, *pieces: bytes, fails: bool = False) -> None:
        self.pieces, self.fails = pieces, fails

    def revision(self) -> str | None:
        return "r1"

    def copied(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.fails:
            raise OSError(28, "No space left on device", "/somewhere")


@pytest.fixture
def keys(tmp_path: Path) -> FileKeys:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "1.key").write_bytes(base64.b64encode(bytes(range(32))) + b"\n")
    return FileKeys(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


def made(folder: Path, keys: FileKeys, *pieces: bytes, at: float = 1_800_000_000.0) -> backups.Backup:
    return backups.make(t.cast(t.Any, Texts(*pieces)), folder, keys, "39.0.0", lambda: at)


def test_a_backup_comes_back_as_it_was_and_says_what_it_is(folder: Path, keys: FileKeys) -> None:
    pieces = (os.urandom(3_000_000), b"", b"x" * 10)
    found = made(folder, keys, *pieces)
    assert b"".join(backups.content(backups.read(found.path), keys)) == b"".join(pieces)
    assert (found.version, found.revision, found.database, found.created) == ("39.0.0", "r1", "sqlite", 1.8e9)
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["ironic-20270115T080000Z.backup"]


def test_what_is_in_it_is_not_to_be_read(folder: Path, keys: FileKeys) -> None:
    assert SECRET.encode() not in made(folder, keys, SECRET.encode() * 100).path.read_bytes()


@hypothesis_settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_byte_can_be_altered_added_or_lost(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("b")
    (folder / "1.key").write_bytes(base64.b64encode(bytes(32)))
    keys = FileKeys(folder)
    path = made(folder, keys, b"some rows " * 50).path
    whole = path.read_bytes()
    change = data.draw(st.sampled_from(["flip", "cut", "add"]))
    place = data.draw(st.integers(0, len(whole) - 1))
    if change == "flip":
        bit = data.draw(st.integers(0, 7))
        broken = whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :]
    else:
        broken = whole[:place] if change == "cut" else whole + whole[place:]
    path.write_bytes(broken)
    with pytest.raises(ProgramError):
        list(backups.content(backups.read(path), keys))


def test_a_backup_under_another_files_first_line_is_refused(folder: Path, keys: FileKeys) -> None:
    one, other = made(folder, keys, b"one"), made(folder, keys, b"other")
    body = other.path.read_bytes()[len(other.line) :]
    one.path.write_bytes(one.line + body)
    with pytest.raises(ProgramError, match="is not what was written"):
        list(backups.content(one, keys))


def test_a_key_that_is_lost_is_named(folder: Path, keys: FileKeys) -> None:
    found = made(folder, keys, b"x")
    (keys.folder / "1.key").unlink()
    with pytest.raises(KeyMissing, match="needs the key version '1'"):
        list(backups.content(found, keys))


def test_another_key_encrypts_from_then_on_and_the_former_still_opens(folder: Path, keys: FileKeys) -> None:
    former = made(folder, keys, b"former")
    (keys.folder / "2.key").write_bytes(base64.b64encode(bytes(32)))
    newer = made(folder, keys, b"newer")
    assert (former.key_version, newer.key_version) == ("1", "2")
    assert b"".join(backups.content(former, keys)) == b"former"


def test_nothing_is_left_of_one_that_could_not_be_finished(folder: Path, keys: FileKeys) -> None:
    with pytest.raises(OSError, match="No space"):
        backups.make(t.cast(t.Any, Texts(b"x", fails=True)), folder, keys, "39.0.0")
    assert list(folder.iterdir()) == []


def test_one_that_is_being_made_is_not_taken_for_left_over(folder: Path, keys: FileKeys) -> None:
    """The timer's, and one that somebody asks for, may meet: the one waits for the other."""

    class Met(Texts):
        def copied(self) -> Iterator[bytes]:
            other.start()
            other.join(0.5)
            yield from super().copied()

    other = threading.Thread(target=backups.prune, args=(folder, 1))
    kept = backups.make(t.cast(t.Any, Met(b"whole")), folder, keys, "39.0.0")
    other.join()
    assert b"".join(backups.content(kept, keys)) == b"whole"
    assert list(folder.iterdir()) == [kept.path]


def test_the_newest_stay(folder: Path, keys: FileKeys) -> None:
    times = [1.8e9, 1.8e9 + 60, 1.8e9, 1.8e9 + 30]  # two in one second
    made_ = [made(folder, keys, str(number).encode(), at=at).path for number, at in enumerate(times)]
    (folder / ".ironic-20270115T080000Z.backup.unfinished").write_text("of a kill")
    (folder / "notes.txt").write_text("somebody's")
    assert backups.found(folder) == [made_[1], made_[3], made_[2], made_[0]]
    assert backups.prune(folder, 2) == [made_[2], made_[0]]
    assert {path.name for path in folder.iterdir()} == {made_[1].name, made_[3].name, "notes.txt"}


@pytest.mark.parametrize(
    "text",
    [b"", b"{}\n", b"not json\n", b'{"format": "ironspan-ironic-backup"}\n', b"\xff\n", b"[]\n", b"x" * 9000],
)
def test_what_is_no_backup_is_refused(folder: Path, text: bytes) -> None:
    (folder / "x").write_bytes(text)
    with pytest.raises(ProgramError, match="is no backup of Ironic"):
        backups.read(folder / "x")


def test_a_later_format_is_refused(folder: Path) -> None:
    (folder / "x").write_bytes(b'{"format": "ironspan-ironic-backup", "schema": 2}\n')
    with pytest.raises(ProgramError, match="has format 2; this version reads 1"):
        backups.read(folder / "x")


def test_a_database_that_was_never_finished_is_not_backed_up(
    folder: Path, keys: FileKeys, tmp_path: Path
) -> None:
    with pytest.raises(ProgramError, match="was never finished"):
        backups.make(Sqlite(tmp_path / "none.sqlite", ""), folder, keys, "39.0.0")


def filled(path: Path, rows: Iterable[tuple[int, str]]) -> Sqlite:
    path.parent.mkdir(exist_ok=True)
    with sqlite3.connect(path) as live:
        live.execute("CREATE TABLE alembic_version (version_num TEXT)")
        live.execute("INSERT INTO alembic_version VALUES ('r1')")
        live.execute("CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT)")
        live.executemany("INSERT INTO nodes VALUES (?, ?)", list(rows))
    live.close()
    return Sqlite(path, "")


def test_sqlite_is_copied_while_somebody_writes_and_put_back(
    folder: Path, keys: FileKeys, tmp_path: Path
) -> None:
    database = filled(tmp_path / "live" / "ironic.sqlite", [(n, f"node {n}") for n in range(500)])
    writer = sqlite3.connect(tmp_path / "live" / "ironic.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM nodes WHERE id < 250")
    found = backups.make(database, folder, keys, "39.0.0")
    writer.execute("COMMIT")
    assert database.count("nodes") == 250
    writer.close()
    database.put(backups.content(found, keys))
    assert (database.count("nodes"), database.revision()) == (500, "r1")
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["ironic.sqlite"]


def test_what_is_no_database_replaces_none(tmp_path: Path) -> None:
    database = filled(tmp_path / "live" / "ironic.sqlite", [(1, "one")])
    with pytest.raises(ProgramError, match="SQLite did not take the backup"):
        database.put([b"SQLite format 3\0" + b"\1" * 5000])
    assert database.count("nodes") == 1


def test_a_note_of_one_thing_leaves_that_of_the_other(folder: Path) -> None:
    backups.note(folder, "backup", ok=True, file="a")
    backups.note(folder, "drill", ok=False, reason="why")
    said = backups.status(folder)
    assert (said["backup"]["file"], said["drill"]["reason"]) == ("a", "why")
    (folder / "status.json").write_text("{")
    assert backups.status(folder) == {}
