# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the tree of a bbolt bucket: row after row in the order of their keys, full page after full page."""

from __future__ import annotations

import typing as t

from ironspan.backup.rebuild import boltpage
from ironspan.backup.rebuild.boltpage import Child, Row

_WRITE_BYTES = 1 << 20


class Pages(t.Protocol):
    """Where the pages go."""

    @property
    def page_size(self) -> int:
        """Bytes a page has."""

    def allocate(self, pages: int) -> int:
        """Return the number of the first of ``pages`` new pages at the end."""

    def write(self, page: int, data: t.Sequence[bytes]) -> None:
        """Write whole pages one after the other, beginning with ``page``."""


class Tree:
    """Writes a bucket's rows in the order of their keys as a tree of full pages.

    Args:
        file: gets the pages.
        leaf: rows of the last leaf, when the tree continues one that is there.
        branches: what is left of it on each level of branches, the lowest first.
    """

    def __init__(self, file: Pages, leaf: list[Row], branches: list[list[Child]]) -> None:
        self._file = file
        self._rows: list[Row] = []
        self._bytes = boltpage.HEAD.size
        self._levels = branches
        self._pending: list[bytes] = []
        self._pending_from = self._pending_pages = 0
        for flags, key, value in leaf:
            self.add(key, value, flags)

    def add(self, key: bytes, value: bytes, flags: int = 0) -> None:
        """Add a row; its key is greater than those before."""
        size = boltpage.row_bytes(key, value)
        if self._rows and self._bytes + size > self._file.page_size:
            self._write_leaf()
        self._rows.append((flags, key, value))
        self._bytes += size

    def finish(self) -> int:
        """Write what is left; returns the page of the root."""
        page, level = self._write_leaf(up=False), 0
        key = self._first_key
        while level < len(self._levels):
            self._add_child(level, (key, page))
            children = self._levels[level]
            if len(children) == 1 and level == len(self._levels) - 1:
                break
            key, page = children[0][0], self._write_branch(children)
            level += 1
        self._flush()
        return page

    def _write_leaf(self, up: bool = True) -> int:
        self._first_key = self._rows[0][1] if self._rows else b""
        page = self._write_page(boltpage.LEAF_FLAG, len(self._rows), boltpage.leaf(self._rows))
        self._rows, self._bytes = [], boltpage.HEAD.size
        if up:
            self._add_child(0, (self._first_key, page))
        return page

    def _add_child(self, level: int, child: Child) -> None:
        if level == len(self._levels):
            self._levels.append([])
        children = self._levels[level]
        size = (len(children) + 1) * boltpage.child_bytes(child[0])
        if children and boltpage.HEAD.size + size > self._file.page_size:
            page = self._write_branch(children)
            self._levels[level] = [child]
            self._add_child(level + 1, (children[0][0], page))
        else:
            children.append(child)

    def _write_branch(self, children: list[Child]) -> int:
        return self._write_page(boltpage.BRANCH_FLAG, len(children), boltpage.branch(children))

    def _write_page(self, flags: int, count: int, parts: list[bytes]) -> int:
        content = b"".join(parts)
        pages = -(-(boltpage.HEAD.size + len(content)) // self._file.page_size)
        page = self._file.allocate(pages)
        if self._pending and page != self._pending_from + self._pending_pages:
            self._flush()
        if not self._pending:
            self._pending_from = page
        head = boltpage.HEAD.pack(page, flags, count, pages - 1)
        self._pending.append((head + content).ljust(pages * self._file.page_size, b"\0"))
        self._pending_pages += pages
        if self._pending_pages * self._file.page_size >= _WRITE_BYTES:
            self._flush()
        return page

    def _flush(self) -> None:
        if self._pending:
            self._file.write(self._pending_from, self._pending)
            self._pending, self._pending_pages = [], 0
