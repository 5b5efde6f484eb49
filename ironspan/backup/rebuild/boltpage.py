# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pages of a bbolt database: their bytes (page.go in bbolt's internal/common, unchanged since 2014)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEAD = struct.Struct("<QHHI")
"""Of every page: id, flags, count, overflow."""
LEAF = struct.Struct("<IIII")
"""Of each row: flags, position, key size, value size."""
BRANCH = struct.Struct("<IIQ")
"""Of each child: position, key size, page."""
META = struct.Struct("<IIIIQQQQQ")
"""Of a meta page: magic, version, page size, flags, root, sequence, freelist, end, txid."""
BRANCH_FLAG, LEAF_FLAG, META_FLAG = 0x01, 0x02, 0x04

Row = tuple[int, bytes, bytes]
"""Flags, key and value of one entry of a leaf."""
Child = tuple[bytes, int]
"""First key and page of one child of a branch."""


def rows(page: bytes) -> list[Row]:
    """Return the rows of a leaf."""
    found = []
    for index in range(HEAD.unpack_from(page)[2]):
        start = HEAD.size + index * LEAF.size
        flags, position, key_size, value_size = LEAF.unpack_from(page, start)
        key = start + position
        found.append((flags, page[key : key + key_size], page[key + key_size : key + key_size + value_size]))
    return found


def children(page: bytes) -> list[Child]:
    """Return the children of a branch."""
    found = []
    for index in range(HEAD.unpack_from(page)[2]):
        start = HEAD.size + index * BRANCH.size
        position, size, child = BRANCH.unpack_from(page, start)
        found.append((page[start + position : start + position + size], child))
    return found


def row_bytes(key: bytes, value: bytes) -> int:
    """Return how much of a leaf a row takes."""
    return LEAF.size + len(key) + len(value)


def child_bytes(key: bytes) -> int:
    """Return how much of a branch a child takes."""
    return BRANCH.size + len(key)


def leaf(content: Sequence[Row]) -> list[bytes]:
    """Return what follows the head of a leaf with these rows."""
    heads: list[bytes] = []
    data: list[bytes] = []
    position = LEAF.size * len(content)
    for flags, key, value in content:
        heads.append(LEAF.pack(flags, position, len(key), len(value)))
        data += (key, value)
        position += len(key) + len(value) - LEAF.size
    return heads + data


def branch(content: Sequence[Child]) -> list[bytes]:
    """Return what follows the head of a branch with these children."""
    heads: list[bytes] = []
    data: list[bytes] = []
    position = BRANCH.size * len(content)
    for key, page in content:
        heads.append(BRANCH.pack(position, len(key), page))
        data.append(key)
        position += len(key) - BRANCH.size
    return heads + data


def checksum(data: bytes) -> int:
    """Return the FNV-1a hash of a meta page's fields, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
