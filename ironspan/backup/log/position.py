# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How much would be lost now: up to which moment everything that etcd acknowledged is in the store."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable

FACTS = 4096
"""Facts kept, of four a second; of more every second one goes, which only makes the answer more careful."""


class Position:
    """Knows what was received and what is durable. Any thread may call it.

    It collects facts of the form "what etcd acknowledged before this moment has at most that revision". A
    fact counts once its revision is durable. So a watch that stalls or catches up, a store that is down and
    an agent that is slow all show as the same thing, an age that grows. What a watch delivers is no such
    fact: etcd has acknowledged more while it was on its way.

    Args:
        revision: what is durable at the start.
        clock: seconds, never set back.
        age_s: how long ago it was known that etcd had nothing newer.
    """

    def __init__(
        self, revision: int, clock: Callable[[], float] = time.monotonic, age_s: float = 0.0
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._received = self._durable = revision
        self._facts: collections.deque[tuple[int, float]] = collections.deque()
        self._until = clock() - age_s

    @property
    def received_revision(self) -> int:
        """The last complete revision that the watch gave."""
        return self._received

    @property
    def durable_revision(self) -> int:
        """The last complete revision that is in the store."""
        return self._durable

    def received(self, revision: int) -> None:
        """Note that the watch is complete up to a revision (the reader's thread)."""
        with self._lock:
            self._received = max(self._received, revision)

    def acknowledged(self, revision: int, at: float) -> None:
        """Note what a read that sees every acknowledged write said.

        Args:
            revision: etcd's at the time of the read.
            at: when the read began, of the same clock.
        """
        with self._lock:
            if revision <= self._durable:
                self._until = max(self._until, at)
                return
            self._facts.append((revision, at))
            if len(self._facts) > FACTS:
                self._facts = collections.deque(list(self._facts)[::2])

    def stored(self, revision: int) -> None:
        """Note that everything up to a revision is in the store (the sender's thread)."""
        with self._lock:
            self._durable = max(self._durable, revision)
            while self._facts and self._facts[0][0] <= self._durable:
                self._until = max(self._until, self._facts.popleft()[1])

    def rpo(self) -> float:
        """Return the age, in seconds, of the newest moment before which nothing would be lost."""
        with self._lock:
            return max(0.0, self._clock() - self._until)
