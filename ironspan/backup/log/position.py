# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How much would be lost now: up to which moment everything that etcd acknowledged is in the store."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable

RESOLUTION_S = 0.01
FACTS = 4096
"""Facts kept; for more they are kept half as often, which only makes the answer more careful."""


class Position:
    """Knows what was received and what is durable. Any thread may call it.

    It collects facts of the form "what etcd acknowledged before this moment has at most that revision". A
    fact counts once its revision is durable. So a watch that stalls, a store that is down and an agent that
    is slow all show as the same thing, an age that grows.

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
        self._received = self._durable = self._newest = revision
        self._resolution = RESOLUTION_S
        self._facts: collections.deque[tuple[int, float]] = collections.deque()
        self._ahead: collections.deque[tuple[int, float]] = collections.deque()
        self._until = clock() - age_s

    @property
    def received_revision(self) -> int:
        """The last complete revision that the watch gave."""
        return self._received

    @property
    def durable_revision(self) -> int:
        """The last complete revision that is in the store."""
        return self._durable

    def received(self, revision: int, at: float | None = None, newest: int = 0) -> None:
        """Note that the watch is complete up to a revision (the reader's thread).

        Args:
            revision: what it gave last, or what a progress notification says.
            at: when, of the same clock; now by default.
            newest: etcd's revision when it gave that, where it was a newer one: the watch is catching up.
        """
        at = self._clock() if at is None else at
        with self._lock:
            self._received = max(self._received, revision)
            self._newest = max(self._newest, self._received, newest)
            if self._newest <= self._durable and not self._facts:
                self._until = max(self._until, at)
            elif self._facts and at - self._facts[-1][1] < self._resolution:
                self._facts[-1] = (self._newest, self._facts[-1][1])
            else:
                self._facts.append((self._newest, at))
                if len(self._facts) > FACTS:
                    self._facts = collections.deque(list(self._facts)[::2])
                    self._resolution *= 2

    def acknowledged(self, revision: int, at: float) -> None:
        """Note what a read that sees every acknowledged write said (the watchdog's thread).

        A member that lags behind its cluster sends progress notifications of its own revision; this is what
        finds it out.

        Args:
            revision: etcd's at the time of the read.
            at: when the read began.
        """
        with self._lock:
            if revision > self._received and len(self._ahead) < FACTS:
                self._ahead.append((revision, at))

    def stored(self, revision: int) -> None:
        """Note that everything up to a revision is in the store (the sender's thread)."""
        with self._lock:
            self._durable = max(self._durable, revision)
            while self._facts and self._facts[0][0] <= self._durable:
                self._until = max(self._until, self._facts.popleft()[1])
            if not self._facts:
                self._resolution = RESOLUTION_S
            while self._ahead and self._ahead[0][0] <= self._durable:
                self._ahead.popleft()

    def rpo(self) -> float:
        """Return the age, in seconds, of the newest moment before which nothing would be lost."""
        with self._lock:
            until = min(self._until, self._ahead[0][1]) if self._ahead else self._until
        return max(0.0, self._clock() - until)
