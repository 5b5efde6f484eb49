# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The queue between the reader and the flusher, bounded in bytes."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable

from ironspan.backup.records import Coalesced, Record, Revision

MAX_BYTES = 16 << 20
"""A quarter of an hour of a busy cluster's log, or 16 s of 1,000 writes of 1 KiB a second."""
OVERHEAD = 256
"""Bytes of a record or event in memory besides its key and value (CPython 3.13, measured)."""


def cost(record: Record) -> int:
    """Return about how many bytes a record takes in memory."""
    match record:
        case Revision(events=events):
            return OVERHEAD + sum(OVERHEAD + len(event.key) + len(event.value) for event in events)
        case Coalesced(key=key):
            return OVERHEAD + len(key)
    return OVERHEAD


class Closed(Exception):
    """The queue was closed while something waited for it."""


class Inbox:
    """A queue of records; ``put`` waits while it is full.

    Args:
        max_bytes: what it holds at most, but for one record that is larger than that alone.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._records: collections.deque[tuple[int, Record]] = collections.deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def bytes(self) -> int:
        """Return about how many bytes wait."""
        return self._bytes

    @property
    def closed(self) -> bool:
        """Whether nothing more comes."""
        return self._closed

    def put(self, records: Iterable[Record]) -> None:
        """Add records in order (the reader's thread). Raises Closed, also while it waits."""
        for record in records:
            size = cost(record)
            with self._changed:
                while self._bytes and self._bytes + size > self._max and not self._closed:
                    self._changed.wait()
                if self._closed:
                    raise Closed
                self._records.append((size, record))
                self._bytes += size
                if self._bytes * 2 > self._max:
                    self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Return after some seconds, or sooner when it is half full or closed (the flusher's thread)."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes * 2 > self._max, seconds)

    def take(self, max_bytes: int) -> list[Record]:
        """Return what waits, up to about ``max_bytes``, without waiting (the flusher's thread)."""
        taken: list[Record] = []
        size = 0
        with self._changed:
            while self._records and (not taken or size + self._records[0][0] <= max_bytes):
                cost_of_it, record = self._records.popleft()
                size += cost_of_it
                taken.append(record)
            self._bytes -= size
            self._changed.notify_all()
        return taken

    def close(self) -> None:
        """Let no more in; what is in it can still be taken. Any thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
