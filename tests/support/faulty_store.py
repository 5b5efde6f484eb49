# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A store that fails where a test wants it to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from ironspan.backup.store import Item, Store
from ironspan.program.errors import RoleMissing, ServiceError
from ironspan.program.leader import Lease

Fault = Literal["refused", "forbidden", "busy", "unknown", "lie", "slow", "cut", "stale"]
"""refused: nothing happened, and an error. forbidden: as refused, for want of a role. busy: as refused, and
when to ask again. unknown: it happened, and an error. lie: neither. slow: it happens later. cut: a reading
breaks off in the middle. stale: a list without the newest object, for a moment."""
SLOW_S, STALE_S = 0.05, 0.1


class FaultyStore:
    """Hands on to another store, but for what ``fault`` says.

    Args:
        store: the store behind.
        fault: called with the operation's and the object's name before each; says what happens instead.
    """

    def __init__(self, store: Store, fault: Callable[[str, str], Fault | None] = lambda what, name: None):
        self.behind = store
        self.fault = fault
        self.down = threading.Event()
        """While it is set every operation is refused."""
        self.calls: list[tuple[str, str]] = []
        self.clock: Callable[[], float] = time.time
        """The store's."""

    @property
    def name(self) -> str:
        """What the store is called in messages."""
        return self.behind.name

    def _meet(self, what: str, name: str) -> Fault | None:
        self.calls.append((what, name))
        fault: Fault | None = "refused" if self.down.is_set() else self.fault(what, name)
        if fault == "forbidden":
            raise RoleMissing(f"{self.name}: {what} {name}: no role, says the test.", "Assign one.")
        if fault in ("refused", "busy"):
            asked = 0.02 if fault == "busy" else None
            message = f"{self.name}: {what} {name}: {fault}, says the test."
            raise ServiceError(message, retryable=True, retry_after=asked)
        if fault == "slow":
            time.sleep(SLOW_S)
        return fault

    def _after(self, fault: Fault | None, what: str, name: str) -> None:
        if fault == "unknown":
            raise ServiceError(f"{self.name}: {what} {name}: no answer, says the test.", retryable=True)

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Store.put."""
        fault = self._meet("put", name)
        if fault != "lie":
            self.behind.put(name, data)
        self._after(fault, "put", name)

    def create_append(self, name: str) -> None:
        """Store.create_append."""
        fault = self._meet("create_append", name)
        if fault != "lie":
            self.behind.create_append(name)
        self._after(fault, "create_append", name)

    def append(self, name: str, data: bytes, position: int) -> int:
        """Store.append."""
        fault = self._meet("append", name)
        length = position + len(data) if fault == "lie" else self.behind.append(name, data, position)
        self._after(fault, "append", name)
        return length

    def size(self, name: str) -> int:
        """Store.size."""
        self._meet("size", name)
        return self.behind.size(name)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Store.read."""
        fault = self._meet("read", name)
        pieces = self.behind.read(name, offset, length)
        return self._cut(name, pieces) if fault == "cut" else pieces

    def _cut(self, name: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece[: len(piece) // 2]
            break
        raise ServiceError(f"{self.name}: read {name}: broke off, says the test.", retryable=True)

    def list(self, prefix: str) -> Iterator[Item]:
        """Store.list."""
        fault = self._meet("list", prefix)
        items = list(self.behind.list(prefix))
        if fault == "stale" and items:
            newest = max(items, key=lambda item: item.created)
            if self.clock() - newest.created < STALE_S:
                items.remove(newest)
        return iter(items)

    def delete(self, name: str) -> None:
        """Store.delete."""
        self._meet("delete", name)
        self.behind.delete(name)

    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        """Store.acquire."""
        fault = self._meet("acquire", name)
        lease = self.behind.acquire(name, seconds, holder)
        self._after(fault, "acquire", name)
        return _FaultyLease(self, name, lease)


class _FaultyLease:
    def __init__(self, store: FaultyStore, name: str, lease: Lease) -> None:
        self._store, self._name, self._lease = store, name, lease

    @property
    def id(self) -> str:
        return self._lease.id

    def renew(self) -> None:
        fault = self._store._meet("renew", self._name)
        if fault != "lie":
            self._lease.renew()
        self._store._after(fault, "renew", self._name)

    def release(self) -> None:
        self._store._meet("release", self._name)
        self._lease.release()
