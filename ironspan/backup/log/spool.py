# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Batches on this host's disk, while the store cannot be written: etcd forgets its history meanwhile.

A file is a sequence of entries; an entry is a head, its CRC, and the batch's encoded records. An entry is
whole or not there: it counts once it is synced, and what a kill left of one is cut off. The files have the
same content as etcd's own data folder on this disk, and are readable by their owner only.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from ironspan.backup.errors import ChainError
from ironspan.backup.log.batch import Batch
from ironspan.backup.records import Coalesced, Progress, Record, Revision, decode, encode
from ironspan.program.errors import ProgramError

FILE_BYTES = 8 << 20
"""A file is removed once all of it is in the store."""
MAGIC = b"ISP1"
_HEAD = struct.Struct(">4sIIQQBI")  # magic, CRC of all behind it, payload bytes, first, last, flags, size


class SpoolError(ProgramError):
    """The spool cannot take or give a batch: disk full, folder read-only, limit reached, bytes altered."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    file: int
    offset: int
    payload: int
    first: int
    last: int
    begins_inside: bool
    ends_inside: bool
    size: int

    @property
    def touches(self) -> int:
        """The newest revision that it has something of."""
        return self.last + 1 if self.ends_inside else self.last


class Spool:
    """A queue of batches on disk. One thread at a time.

    Args:
        folder: of one cluster and epoch; made when first needed.
        max_bytes: that all files may have together.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: collections.deque[_Entry] = collections.deque()
        self._file: int | None = None
        self._last_number = 0
        self._stored = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last_revision(self) -> int:
        """The last complete revision that is in it; 0 when it is empty."""
        return self._entries[-1].last if self._entries else 0

    # -- after a start -----------------------------------------------------------------------------

    def recover(self, stored: int) -> int:
        """Read what an earlier run left and keep what the log in the store goes on with.

        Args:
            stored: the last complete revision that is in the store.

        Returns:
            The next revision to ask etcd for.

        Raises:
            SpoolError: the folder cannot be read or cleaned.
        """
        self._stored = stored
        try:
            found = list(self._scan())
            while found and found[-1].ends_inside:
                found.pop()
            found = [entry for entry in found if entry.touches > stored]
            if found and (
                found[0].first > stored + 1 or (found[0].begins_inside and found[0].first > stored)
            ):
                found = []
            self._entries = collections.deque(found)
            self._clean()
        except OSError as error:
            raise _problem("read", self.folder, error) from error
        return found[-1].last + 1 if found else stored + 1

    def _files(self) -> dict[int, Path]:
        paths = self.folder.glob("*.spool") if self.folder.is_dir() else ()
        return {int(path.stem): path for path in sorted(paths) if path.stem.isdecimal()}

    def _scan(self) -> Iterator[_Entry]:
        before: _Entry | None = None
        for number, path in self._files().items():
            self._last_number = max(self._last_number, number)
            data = path.read_bytes()
            offset = 0
            while (entry := _entry(data, number, offset)) is not None:
                if before and (
                    entry.first != before.last + 1 or entry.begins_inside is not before.ends_inside
                ):
                    return
                yield entry
                before = entry
                offset += _HEAD.size + entry.payload

    def _clean(self) -> None:
        needed = {entry.file for entry in self._entries}
        self.bytes = 0
        for number, path in self._files().items():
            if number in needed:
                ends = [e.offset + _HEAD.size + e.payload for e in self._entries if e.file == number]
                os.truncate(path, max(ends))
                self.bytes += max(ends)
            else:
                path.unlink()

    # -- the queue ---------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Add a batch; it survives a crash from then on.

        Raises:
            SpoolError: it was not added; what was there is untouched.
        """
        payload = encode(batch.records)
        flags = batch.begins_inside | batch.ends_inside << 1
        tail = _HEAD.pack(b"", 0, len(payload), batch.first, batch.last, flags, batch.size)[8:]
        data = MAGIC + struct.pack(">I", zlib.crc32(payload, zlib.crc32(tail))) + tail + payload
        if self.bytes + len(data) > self.max_bytes:
            raise SpoolError(
                f"The spool {self.folder} has reached its limit of {self.max_bytes} bytes.",
                "Bring the store back, or raise spool.max_bytes.",
            )
        try:
            offset = self._write(data)
        except OSError as error:
            # What is left of the entry ends this file for a reader; the next entry begins another one.
            self._file = None
            raise _problem("write", self.folder, error) from error
        assert self._file is not None
        self._entries.append(
            _Entry(
                self._file,
                offset,
                len(payload),
                batch.first,
                batch.last,
                batch.begins_inside,
                batch.ends_inside,
                batch.size,
            )
        )
        self.bytes += len(data)

    def _write(self, data: bytes) -> int:
        if self._file is not None and self._entries[-1].offset >= FILE_BYTES:
            self._file = None
        made = self._file is None
        if self._file is None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._last_number += 1
            self._file = self._last_number
        path = self._path(self._file)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            offset = os.fstat(descriptor).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fdatasync(descriptor)
            except OSError:
                os.ftruncate(descriptor, offset)
                raise
        finally:
            os.close(descriptor)
        if made:
            _sync(self.folder)
        return offset

    def peek(self, max_bytes: int) -> list[Batch]:
        """Return the first batches: one, and as many more as fit ``max_bytes`` of memory together.

        Raises:
            SpoolError: one of them cannot be read; a new ``recover`` keeps what is before it.
        """
        batches: list[Batch] = []
        size = 0
        for entry in self._entries:
            if batches and size + entry.size > max_bytes:
                break
            batches.append(self._read(entry))
            size += entry.size
        return batches

    def _read(self, entry: _Entry) -> Batch:
        path = self._path(entry.file)
        try:
            with path.open("rb") as file:
                file.seek(entry.offset)
                data = file.read(_HEAD.size + entry.payload)
        except OSError as error:
            raise _problem("read", path, error) from error
        try:
            if _entry(data, entry.file, 0) is None:
                raise ChainError("its CRC does not fit.")
            records = decode(data[_HEAD.size :])
        except ChainError as error:
            raise SpoolError(f"{path} is not what was written: {error}") from error
        kept = [record for record in records if not _stored(record, self._stored)]
        first = max(entry.first, self._stored + 1)
        begins_inside = entry.begins_inside and entry.first > self._stored
        return Batch(first, entry.last, begins_inside, entry.ends_inside, tuple(kept), entry.size)

    def drop(self, count: int) -> None:
        """Forget the first batches: they are in the store. A file that cannot be removed now is left."""
        files = set()
        for _ in range(count):
            files.add(self._entries.popleft().file)
        if not self._entries:
            self._file = None
        for number in sorted(files - {entry.file for entry in self._entries} - {self._file}):
            path = self._path(number)
            try:
                size = path.stat().st_size
                path.unlink()
                self.bytes -= size
            except OSError:
                continue

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.spool"


def _entry(data: bytes, number: int, offset: int) -> _Entry | None:
    if len(data) < offset + _HEAD.size:
        return None
    magic, crc, payload, first, last, flags, size = _HEAD.unpack_from(data, offset)
    end = offset + _HEAD.size + payload
    if magic != MAGIC or len(data) < end or zlib.crc32(data[offset + 8 : end]) != crc:
        return None
    return _Entry(number, offset, payload, first, last, bool(flags & 1), bool(flags & 2), size)


def _stored(record: Record, revision: int) -> bool:
    return isinstance(record, (Revision, Coalesced, Progress)) and record.revision <= revision


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _problem(verb: str, path: Path, error: OSError) -> SpoolError:
    return SpoolError(
        f"Cannot {verb} the spool {path}: {error.strerror}.",
        "Free space on its file system and let the agent's user write to the folder.",
    )
