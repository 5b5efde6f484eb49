# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The queue between the flusher and the sender: in memory, and on disk once the store makes it wait."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable

from ironspan.backup.log.batch import Batch
from ironspan.backup.log.inbox import Closed
from ironspan.backup.log.spool import Spool, SpoolError

PATIENCE_S = 2.0
MAX_BYTES = 16 << 20


class Outbox:
    """Batches in order; those on disk come first.

    Args:
        spool: after its ``recover``; only the outbox uses it from then on.
        patience_s: how long a batch waits in memory before all that wait go to disk.
        max_bytes: that wait in memory at most; beyond it ``put`` waits, when the spool takes no more.
        clock: seconds, never set back.
    """

    def __init__(
        self,
        spool: Spool,
        patience_s: float = PATIENCE_S,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._patience = patience_s
        self._max = max_bytes
        self._clock = clock
        self._memory: collections.deque[tuple[float, Batch]] = collections.deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self.problem: SpoolError | None = None
        """Why the spool took no more, the last time it was asked."""

    def __len__(self) -> int:
        return len(self._spool) + len(self._memory)

    @property
    def spooled_bytes(self) -> int:
        """Bytes that wait on disk."""
        return self._spool.bytes

    @property
    def spooled_revision(self) -> int:
        """The last revision that is on disk; 0 when nothing is."""
        return self._spool.last_revision

    def put(self, batch: Batch) -> None:
        """Add a batch (the flusher's thread). Raises Closed, also while it waits for room."""
        with self._changed:
            while self._bytes and self._bytes + batch.size > self._max and not self._closed:
                self._spill(late_only=True)
                if self._bytes + batch.size > self._max:
                    self._changed.wait(self._patience / 4)
            if self._closed:
                raise Closed
            self._memory.append((self._clock(), batch))
            self._bytes += batch.size
            self._changed.notify_all()

    def tick(self) -> None:
        """Move to disk what has waited too long (the flusher's thread, at every flush)."""
        with self._changed:
            self._spill(late_only=True)

    def spill(self) -> None:
        """Move everything to disk, at the end of a run. What does not fit stays and is lost to the spool."""
        with self._changed:
            self._spill(late_only=False)

    def _spill(self, late_only: bool) -> None:
        if not self._memory or (late_only and self._clock() - self._memory[0][0] < self._patience):
            return
        try:
            while self._memory:
                batch = self._memory[0][1]
                self._spool.append(batch)
                self._memory.popleft()
                self._bytes -= batch.size
        except SpoolError as error:
            self.problem = error
        else:
            self.problem = None
        self._changed.notify_all()

    def head(self, max_bytes: int, seconds: float) -> list[Batch]:
        """Return the first batches without removing them, or nothing after some seconds (the sender).

        Raises:
            SpoolError: what is first cannot be read.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self) or self._closed, seconds)
            batches = self._spool.peek(max_bytes)
            size = sum(batch.size for batch in batches)
            if len(batches) == len(self._spool):
                for _, batch in self._memory:
                    if batches and size + batch.size > max_bytes:
                        break
                    batches.append(batch)
                    size += batch.size
            return batches

    def done(self, count: int) -> None:
        """Forget the first ``count`` batches, which are in the store (the sender's thread)."""
        with self._changed:
            on_disk = min(count, len(self._spool))
            self._spool.drop(on_disk)
            for _ in range(count - on_disk):
                self._bytes -= self._memory.popleft()[1].size
            self._changed.notify_all()

    def close(self) -> None:
        """Let no more in. Any thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
