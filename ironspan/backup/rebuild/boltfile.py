# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads a bbolt database file that nobody has open, and appends to it.

etcd keeps its data in one bbolt file, and a snapshot is that file. Replaying a log means adding rows at the
end of one bucket, because rows are named by revision; doing so in the file keeps revisions, versions and
leases exactly as they were and takes microseconds a row, where a transaction through etcd takes hundreds and
lets leases expire meanwhile. ``etcdutl snapshot restore --bump-revision`` writes to this bucket in the same
way.

Nothing that is there is overwritten: new pages go behind the last one, and the two meta pages, written last,
make them part of the database. Who is killed before leaves the database as it was.

Format: bbolt's internal/common (page.go, meta.go, bucket.go), unchanged since 2014.
"""

from __future__ import annotations

import os
import struct
import typing as t
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ironspan.backup.rebuild import boltpage
from ironspan.backup.rebuild.boltpage import Child, Row
from ironspan.backup.rebuild.bolttree import Tree
from ironspan.program.errors import ProgramError

_CHECKSUM = struct.Struct("<Q")
_BUCKET = struct.Struct("<QQ")  # root, sequence
_HEAD = boltpage.HEAD.size
_MAGIC, _VERSION = 0xED0CDAED, 2
_NO_FREELIST = 0xFFFFFFFFFFFFFFFF


@dataclass(slots=True)
class _Meta:
    page_size: int
    flags: int
    root: int
    sequence: int
    end: int
    txid: int

    def encode(self, txid: int) -> bytes:
        """Return the meta page of a transaction; which of the two pages it is follows from its number."""
        fields = (self.page_size, self.flags, self.root, self.sequence, _NO_FREELIST, self.end, txid)
        body = boltpage.META.pack(_MAGIC, _VERSION, *fields)
        return (
            boltpage.HEAD.pack(txid % 2, boltpage.META_FLAG, 0, 0)
            + body
            + _CHECKSUM.pack(boltpage.checksum(body))
        )


class BoltFile:
    """A bbolt database file.

    Args:
        path: the file; nobody else may have it open for writing.

    Raises:
        ProgramError: it is no bbolt database, or it is damaged where it was read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR)
        try:
            self._meta = self._newest_meta()
            self._buckets = {key: (flags, value) for flags, key, value in self._rows(self._meta.root)}
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    @property
    def size(self) -> int:
        """Bytes of the database: all its pages, without what follows them in the file."""
        return self._meta.end * self._meta.page_size

    def rows(self, bucket: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key and value of a bucket, in order of the keys."""
        root, inline = self._bucket(bucket)
        source = self._rows(root) if root else iter(boltpage.rows(inline))
        return ((key, value) for _, key, value in source)

    def last_key(self, bucket: bytes) -> bytes | None:
        """Return the greatest key of a bucket; None when it is empty."""
        leaf, _ = self._right_edge(bucket)
        return leaf[-1][1] if leaf else None

    def appender(self, bucket: bytes) -> Tree:
        """Return a writer of rows whose keys are greater than all that the bucket has."""
        return Tree(self, *self._right_edge(bucket))

    def new_tree(self) -> Tree:
        """Return a writer of the rows that a bucket shall have from then on."""
        return Tree(self, [], [])

    def commit(self, roots: t.Mapping[bytes, int]) -> None:
        """Make new trees the content of buckets, on disk when this returns.

        Args:
            roots: the root page of each bucket's tree, as ``Tree.finish`` returns it.
        """
        tree = self.new_tree()
        for name, (flags, value) in sorted(self._buckets.items()):
            if name in roots:
                value = _BUCKET.pack(roots[name], _BUCKET.unpack_from(value)[1])
            tree.add(name, value, flags)
        self._meta.root = tree.finish()
        os.ftruncate(self._file, self.size)
        os.fsync(self._file)
        for txid in (self._meta.txid + 1, self._meta.txid + 2):
            os.pwrite(self._file, self._meta.encode(txid), txid % 2 * self._meta.page_size)
        self._meta.txid += 2
        os.fsync(self._file)

    # -- for Tree ----------------------------------------------------------------------------------

    @property
    def page_size(self) -> int:
        """Bytes a page has."""
        return self._meta.page_size

    def allocate(self, pages: int) -> int:
        """Return the number of the first of ``pages`` new pages at the end."""
        first = self._meta.end
        self._meta.end += pages
        return first

    def write(self, page: int, data: t.Sequence[bytes]) -> None:
        """Write whole pages one after the other, beginning with ``page``."""
        os.pwrite(self._file, b"".join(data), page * self._meta.page_size)

    # -- reading -----------------------------------------------------------------------------------

    def _newest_meta(self) -> _Meta:
        found = []
        first = os.pread(self._file, _HEAD + boltpage.META.size, 0)
        sizes = (
            [boltpage.META.unpack_from(first, _HEAD)[2]] if len(first) == _HEAD + boltpage.META.size else []
        )
        for offset in (0, *sizes, *(1 << shift for shift in range(12, 17))):
            page = os.pread(self._file, _HEAD + boltpage.META.size + _CHECKSUM.size, offset)
            if len(page) < _HEAD + boltpage.META.size + _CHECKSUM.size:
                continue
            magic, version, size, flags, root, sequence, _, end, txid = boltpage.META.unpack_from(page, _HEAD)
            body = page[_HEAD : _HEAD + boltpage.META.size]
            checksum = _CHECKSUM.unpack_from(page, _HEAD + boltpage.META.size)[0]
            if (
                (magic, version) == (_MAGIC, _VERSION)
                and checksum == boltpage.checksum(body)
                and offset in (0, size)
            ):
                found.append(_Meta(size, flags, root, sequence, end, txid))
        if not found:
            raise ProgramError(
                f"{self.path} is no etcd database: neither of its two meta pages is whole.",
                "Fetch the snapshot again; when it stays so, use the one before.",
            )
        return max(found, key=lambda meta: meta.txid)

    def _page(self, number: int) -> tuple[int, bytes]:
        size = self._meta.page_size
        data = os.pread(self._file, size, number * size)
        if number < self._meta.end and len(data) == size:
            written, flags, _, overflow = boltpage.HEAD.unpack_from(data)
            if written == number and flags in (boltpage.BRANCH_FLAG, boltpage.LEAF_FLAG):
                if overflow:
                    data = os.pread(self._file, size * (1 + overflow), number * size)
                if len(data) == size * (1 + overflow):
                    return flags, data
        raise ProgramError(
            f"{self.path}: page {number} of the database is damaged.",
            "Fetch the snapshot again; when it stays so, use the one before.",
        )

    def _rows(self, root: int) -> Iterator[Row]:
        flags, data = self._page(root)
        if flags == boltpage.LEAF_FLAG:
            yield from boltpage.rows(data)
            return
        for _, page in boltpage.children(data):
            yield from self._rows(page)

    def _bucket(self, name: bytes) -> tuple[int, bytes]:
        if name not in self._buckets:
            raise ProgramError(f"{self.path} is no etcd database: it has no bucket {name.decode()!r}.")
        value = self._buckets[name][1]
        return _BUCKET.unpack_from(value)[0], value[_BUCKET.size :]

    def _right_edge(self, bucket: bytes) -> tuple[list[Row], list[list[Child]]]:
        """Return the last leaf, and of the branches above it, the lowest first, all children but the last."""
        root, inline = self._bucket(bucket)
        if not root:
            return boltpage.rows(inline), []
        branches: list[list[Child]] = []
        flags, data = self._page(root)
        while flags == boltpage.BRANCH_FLAG:
            children = boltpage.children(data)
            branches.insert(0, children[:-1])
            flags, data = self._page(children[-1][1])
        return boltpage.rows(data), branches
