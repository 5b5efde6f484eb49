# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Builds the file of a small etcd database, its pages in any order."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Sequence

_PAGE = struct.Struct("<QHHI")
_LEAF = struct.Struct("<IIII")
_BRANCH = struct.Struct("<IIQ")
_BUCKET = struct.Struct("<QQ")
_META = struct.Struct("<IIIIQQQQQQ")
BRANCH, LEAF, META = 1, 2, 4

Row = tuple[int, bytes, bytes]


def database(
    revisions: Sequence[int],
    *,
    compacted: int = 0,
    per_leaf: int = 4,
    value_bytes: int = 10,
    page_bytes: int = 4096,
    seed: int = 0,
) -> bytes:
    """Return a database with one row a revision, which was compacted at a revision.

    Args:
        revisions: ascending.
        compacted: written into the bucket ``meta``; 0 for never.
        per_leaf: rows of one leaf page; with values that are large it gets overflow pages.
        value_bytes: of each row.
        page_bytes: of a page.
        seed: of the order of the pages.
    """
    rows = [(0, struct.pack(">Q1sQ", number, b"_", 0), b"v" * value_bytes) for number in revisions]
    leaves = [_leaf(rows[at : at + per_leaf]) for at in range(0, len(rows), per_leaf)]
    # A page that is free now, of a transaction long ago: newer than all, and in no tree.
    free = _leaf([(0, struct.pack(">Q1sQ", 1 << 40, b"_", 0), b"")])
    pages: list[bytes | None] = [*leaves, free, None, None]
    order = random.Random(seed).sample(range(len(pages)), len(pages))
    placed, number = {}, 3
    for index in order:
        placed[index] = number
        number += max(1, -(-len(pages[index] or b"") // page_bytes))
    branch, root = len(pages) - 2, len(pages) - 1
    pages[branch] = _branch([(b"first", placed[index]) for index in range(len(leaves))])
    if len(leaves) > 1:
        keys = _BUCKET.pack(placed[branch], 0)
    else:
        keys = _BUCKET.pack(placed[0], 0) if leaves else _BUCKET.pack(0, 0) + _leaf([])
    compaction = [(0, b"scheduledCompactRev", struct.pack(">Q1sQ", compacted, b"_", 0))] if compacted else []
    meta = _BUCKET.pack(0, 0) + _leaf(compaction)
    pages[root] = _leaf([(1, b"key", keys), (1, b"meta", meta)])
    data = bytearray(number * page_bytes)
    for which, (transaction, first) in enumerate(((7, 1 << 30), (8, placed[root]))):
        fields = (0xED0CDAED, 2, page_bytes, 0, first, 0, 2, number, transaction, 0)
        head = _PAGE.pack(which, META, 0, 0) + _META.pack(*fields)
        data[which * page_bytes : which * page_bytes + len(head)] = head
    for index, page in enumerate(pages):
        assert page is not None
        overflow = max(1, -(-len(page) // page_bytes)) - 1
        _, flags, count, _ = _PAGE.unpack_from(page)
        page = _PAGE.pack(placed[index], flags, count, overflow) + page[_PAGE.size :]
        data[placed[index] * page_bytes : placed[index] * page_bytes + len(page)] = page
    return bytes(data)


def snapshot(data: bytes) -> bytes:
    """Return a database as etcd streams it: with its SHA-256 behind it."""
    return data + hashlib.sha256(data).digest()


def _leaf(rows: Sequence[Row]) -> bytes:
    heads, body = b"", b""
    for number, (flags, key, value) in enumerate(rows):
        position = (len(rows) - number) * _LEAF.size + len(body)
        heads += _LEAF.pack(flags, position, len(key), len(value))
        body += key + value
    return _PAGE.pack(0, LEAF, len(rows), 0) + heads + body


def _branch(children: Sequence[tuple[bytes, int]]) -> bytes:
    heads, body = b"", b""
    for number, (key, page) in enumerate(children):
        position = (len(children) - number) * _BRANCH.size + len(body)
        heads += _BRANCH.pack(position, len(key), page)
        body += key
    return _PAGE.pack(0, BRANCH, len(children), 0) + heads + body
