# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Backups of Ironic's database: one encrypted file each, whole or not there, the newest ones kept.

A file is one line of JSON, and behind it the compressed copy as ``ironspan.backup.crypto`` encrypts a stream.
The line is part of what is authenticated, so neither it nor the rest can be another file's.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import fcntl
import json
import os
import re
import time
import typing as t
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.backup import crypto
from ironspan.ironic.database import Database
from ironspan.program.errors import ProgramError

FORMAT, SCHEMA = "ironspan-ironic-backup", 1
SUFFIX = ".backup"
_NAME = re.compile(r"ironic-(\d{8}T\d{6}Z)(-\d+)?\.backup")
_UNFINISHED = ".unfinished"
_PIECE = 1 << 20
_LINE_MAX = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Backup:
    """A backup.

    Args:
        path: of its file.
        created: when its copying began, Unix time.
        database: kind of the database that it is of.
        revision: of that database's schema.
        version: of the Ironic that had it.
        line: the file's first line.
    """

    path: Path
    created: float
    database: str
    revision: str
    version: str
    line: bytes
    key_version: str
    wrapped_key: bytes


def make(
    database: Database,
    folder: Path,
    keys: crypto.Keys,
    version: str,
    clock: t.Callable[[], float] = time.time,
) -> Backup:
    """Copy a database into a new file, and return it when it is on the disk.

    Args:
        database: what to copy.
        folder: where to; it exists.
        keys: wrap the key of the file.
        version: of the Ironic that uses the database.
        clock: Unix time.

    Raises:
        ProgramError: the database has no finished schema, cannot be read, or there is no key.
        OSError: the disk is full, for example; nothing of the file is left.
    """
    with alone(folder):
        return _made(database, folder, keys, version, clock())


def _made(database: Database, folder: Path, keys: crypto.Keys, version: str, created: float) -> Backup:
    revision = database.revision()
    if revision is None:
        raise ProgramError("Ironic's database was never finished.", "Start ironspan-ironic.service first.")
    data_key = crypto.new_data_key()
    key_version, wrapped = keys.wrap(data_key)
    head = {
        "format": FORMAT, "schema": SCHEMA, "created": created, "database": database.kind,
        "revision": revision, "version": version, "key_version": key_version,
        "wrapped_key": base64.b64encode(wrapped).decode("ascii"),
    }  # fmt: skip
    line = json.dumps(head, sort_keys=True).encode() + b"\n"
    path = _free_name(folder, created)
    temporary = path.with_name(f".{path.name}{_UNFINISHED}")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            stream.write(line)
            for piece in crypto.encrypt(_compressed(database.copied()), data_key, line.decode()):
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _synchronise(folder)
    return read(path)


def read(path: Path) -> Backup:
    """Return what a backup's first line says; nothing of it is proven yet.

    Raises:
        ProgramError: it is no backup, or of a later format.
    """
    try:
        with path.open("rb") as stream:
            line = stream.readline(_LINE_MAX)
        head = json.loads(line)
        if head["format"] != FORMAT or not line.endswith(b"\n"):
            raise ValueError
        if head["schema"] != SCHEMA:
            raise ProgramError(
                f"{path} has format {head['schema']}; this version reads {SCHEMA}.",
                "Use the version of ironspan that wrote it.",
            )
        return Backup(
            path, float(head["created"]), str(head["database"]), str(head["revision"]), str(head["version"]),
            line, str(head["key_version"]), base64.b64decode(head["wrapped_key"], validate=True),
        )  # fmt: skip
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise ProgramError(f"{path} is no backup of Ironic, or it is damaged.", "Use another one.") from error


def content(backup: Backup, keys: crypto.Keys) -> Iterator[bytes]:
    """Yield the copy in a backup, no byte of it unproven.

    Raises:
        ProgramError: it was altered or cut off, or there is no key for it.
    """
    data_key = keys.unwrap(backup.key_version, backup.wrapped_key)
    with backup.path.open("rb") as stream:
        stream.seek(len(backup.line))
        pieces = iter(lambda: stream.read(_PIECE), b"")
        try:
            yield from _expanded(crypto.decrypt(pieces, data_key, backup.line.decode()))
        except (ProgramError, zlib.error) as error:
            raise ProgramError(
                f"{backup.path} is not what was written, or its end is missing.", "Use another backup."
            ) from error


def found(folder: Path) -> list[Path]:
    """Return the backups of a folder, the newest first."""
    with contextlib.suppress(FileNotFoundError):
        return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=_age, reverse=True)
    return []


def prune(folder: Path, keep: int) -> list[Path]:
    """Delete all backups but the newest, and what was never finished; return which backups went."""
    with alone(folder):
        gone = found(folder)[keep:]
        for path in [*gone, *folder.glob(f".*{_UNFINISHED}")]:
            path.unlink(missing_ok=True)
        return gone


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else is at the backups of a folder: the timer's, somebody's, that before an upgrade.

    What one has not finished the other would take for left over, and two of one second have one name.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def note(folder: Path, what: str, **said: t.Any) -> None:
    """Write down how the last backup or drill ended, for people and for what watches (``status.json``)."""
    with alone(folder):
        known = status(folder)
        content_ = json.dumps({**known, what: {"time": int(time.time()), **said}}, indent=1, sort_keys=True)
        write_file(folder / "status.json", content_.encode() + b"\n", 0o600)


def status(folder: Path) -> dict[str, t.Any]:
    """Return what ``note`` wrote; nothing where that is lost."""
    try:
        known = json.loads((folder / "status.json").read_bytes())
        return known if isinstance(known, dict) else {}
    except (OSError, ValueError):
        return {}


def _free_name(folder: Path, created: float) -> Path:
    stem = time.strftime("ironic-%Y%m%dT%H%M%SZ", time.gmtime(created))
    path, number = folder / f"{stem}{SUFFIX}", 1
    while path.exists():
        path, number = folder / f"{stem}-{number}{SUFFIX}", number + 1
    return path


def _age(path: Path) -> tuple[str, int]:
    match = _NAME.fullmatch(path.name)
    assert match
    return match[1], int((match[2] or "-0")[1:])


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packing = zlib.compressobj(6)
    for piece in pieces:
        yield packing.compress(piece)
    yield packing.flush()


def _expanded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    unpacking = zlib.decompressobj()
    for piece in pieces:
        waiting = piece
        while waiting:
            yield unpacking.decompress(waiting, _PIECE)
            waiting = unpacking.unconsumed_tail
    yield unpacking.flush()
    if not unpacking.eof:
        raise zlib.error("the end is missing")


def _synchronise(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
