# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads a snapshot's revision out of etcd's database while it streams past, without a copy of the file.

etcd does not say at which revision it took a snapshot; under load that is a few revisions after the one that
it reports before. The file is a bbolt database: a tree of pages, in which the bucket ``key`` is sorted by
revision, so that the last key of its last leaf is the newest one. Pages arrive in no order of the tree;
therefore eight bytes are kept for each page, the last pointer of a branch or the last revision of a leaf,
and the tree is walked at the end. Layout: bbolt's internal/common (page.go, meta.go, bucket.go, inode.go);
rules for revisions: etcd's server/storage/mvcc (revision.go, kvstore.go).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ironspan.etcd.errors import EtcdError

_MAGIC = 0xED0CDAED
_PAGE = struct.Struct("<QHHI")  # id, flags, count, overflow
_META = struct.Struct("<IIIIQQQQQ")  # magic, version, page size, flags, root, sequence, freelist, pages, txid
_BRANCH = struct.Struct("<IIQ")  # position, key size, page
_LEAF = struct.Struct("<IIII")  # flags, position, key size, value size
_BUCKET = struct.Struct("<QQ")  # root page (0: the page follows), sequence
_IS_BRANCH, _IS_LEAF = 0x01, 0x02
_REVISION_SIZES = (17, 18)  # 8 bytes main, "_", 8 bytes sub, "t" for a tombstone
_LEAST_PAGE, _MOST_PAGE = 1 << 9, 1 << 16
_DEEPEST = 64
_MOST_NUMBER = (1 << 64) - 1


class DatabaseError(EtcdError):
    """The stream is no etcd database."""


@dataclass(slots=True)
class _Range:
    """Bytes of the file that are collected as they pass."""

    begin: int
    end: int
    then: Callable[[bytes], None]
    data: bytearray = field(default_factory=bytearray)

    def take(self, page: bytes, offset: int) -> bool:
        """Add what a page has of the range; return whether it is whole."""
        self.data += page[max(self.begin - offset, 0) : max(self.end - offset, 0)]
        if offset + len(page) < self.end:
            return False
        self.then(bytes(self.data))
        return True


class DatabaseReader:
    """Takes a database in pieces of any size and knows its revision at the end."""

    def __init__(self) -> None:
        self._rest = b""
        self._page_size = 0
        self._root = 0
        # One number a page: branch, last child * 2 + 1; leaf, last revision * 2.
        self._last = array("Q")
        self._ranges: list[_Range] = []
        self._buckets: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file.

        Raises:
            DatabaseError: the file does not begin as a database does.
        """
        data = self._rest + data
        begin = 0
        if not self._page_size:
            if len(data) < 2 * _MOST_PAGE:
                self._rest = data
                return
            self._begin(data)
        while begin + self._page_size <= len(data):
            self._page(data[begin : begin + self._page_size])
            begin += self._page_size
        self._rest = data[begin:]

    def revision(self) -> int:
        """Return the newest revision, once all was fed.

        Raises:
            DatabaseError: the tree does not lead to it.
        """
        if not self._page_size:
            # A database this small was never cut into pages while it arrived.
            self._begin(self._rest)
            self.feed(b"")
        value = self._buckets.get(b"key", b"")
        if len(value) < _BUCKET.size:
            raise DatabaseError("The database has no bucket of keys.")
        root, _ = _BUCKET.unpack_from(value)
        newest = self._newest(root) if root else _last_revision(value[_BUCKET.size :])
        # The newest keys may all have been deleted and compacted; then the compaction's revision is it.
        meta = dict(_inline(self._buckets.get(b"meta", b"")))
        return max(1, newest, *(_main(meta.get(name, b"")) for name in _COMPACTIONS))

    def _begin(self, data: bytes) -> None:
        first = _read_meta(data, 0)
        sizes = [first[1]] if first else [1 << n for n in range(9, 17)]
        found = [meta for meta in (first, *(_read_meta(data, size) for size in sizes)) if meta]
        if not found:
            raise DatabaseError("The stream is no etcd database.")
        self._root, self._page_size = max(found, key=lambda meta: meta[2])[:2]
        if not _LEAST_PAGE <= self._page_size <= _MOST_PAGE:
            raise DatabaseError(f"The database has pages of {self._page_size} bytes.")

    def _page(self, page: bytes) -> None:
        number = len(self._last)
        offset = number * self._page_size
        self._last.append(0)
        if self._ranges:
            self._ranges = [wanted for wanted in self._ranges if not wanted.take(page, offset)]
        identity, flags, count, overflow = _PAGE.unpack_from(page)
        # A page's later parts and free pages may hold anything; the walk never leads to what is made of it.
        if identity != number or not count:
            return
        if number == self._root:
            self._want(page, offset, 0, (1 + overflow) * self._page_size, self._read_root)
        element = _PAGE.size + (count - 1) * _LEAF.size
        if element + _LEAF.size > len(page):
            return
        if flags & _IS_BRANCH:
            self._last[number] = (_BRANCH.unpack_from(page, element)[2] << 1 | 1) & _MOST_NUMBER
        elif flags & _IS_LEAF:
            _, position, size, _ = _LEAF.unpack_from(page, element)
            if size in _REVISION_SIZES:

                def keep(key: bytes) -> None:
                    self._last[number] = _main(key) << 1 & _MOST_NUMBER

                self._want(page, offset, element + position, size, keep)

    def _want(self, page: bytes, offset: int, begin: int, size: int, then: Callable[[bytes], None]) -> None:
        wanted = _Range(offset + begin, offset + begin + size, then)
        if not wanted.take(page, offset):
            self._ranges.append(wanted)

    def _read_root(self, page: bytes) -> None:
        self._buckets = dict(_elements(page))

    def _newest(self, number: int) -> int:
        for _ in range(_DEEPEST):
            if number >= len(self._last):
                break
            last = self._last[number]
            if not last & 1:
                return last >> 1
            number = last >> 1
        raise DatabaseError("The tree of keys leads out of the database.")


_COMPACTIONS = (b"scheduledCompactRev", b"finishedCompactRev")


def _read_meta(data: bytes, offset: int) -> tuple[int, int, int] | None:
    """Return root page, page size and transaction of a meta page, if it is one."""
    if len(data) < offset + _PAGE.size + _META.size:
        return None
    magic, _, page_size, _, root, _, _, _, transaction = _META.unpack_from(data, offset + _PAGE.size)
    return (root, page_size, transaction) if magic == _MAGIC else None


def _elements(page: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a whole leaf page; of a damaged one those that it has room for."""
    if len(page) < _PAGE.size:
        return
    _, _, count, _ = _PAGE.unpack_from(page)
    room = (len(page) - _PAGE.size) // _LEAF.size
    for number in range(min(count, room)):
        element = _PAGE.size + number * _LEAF.size
        _, position, key_size, value_size = _LEAF.unpack_from(page, element)
        key = element + position
        yield page[key : key + key_size], page[key + key_size : key + key_size + value_size]


def _inline(bucket: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield what a bucket holds that is small enough to be kept in its parent."""
    if len(bucket) > _BUCKET.size and not _BUCKET.unpack_from(bucket)[0]:
        yield from _elements(bucket[_BUCKET.size :])


def _last_revision(page: bytes) -> int:
    return max((_main(key) for key, _ in _elements(page)), default=0)


def _main(key: bytes) -> int:
    return int.from_bytes(key[:8], "big") if len(key) in _REVISION_SIZES and key[8:9] == b"_" else 0
