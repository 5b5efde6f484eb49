# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A store in memory, for tests of what is built on stores, with what can go wrong between."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import threading
import time

from ironspan.backup.errors import PositionConflict
from ironspan.backup.store import APPEND_MAX, LEASE_SECONDS, Item
from ironspan.program.errors import AlreadyThere, Forbidden, LeaseLost, NotThere, ServiceError
from ironspan.program.leader import Lease


@dataclasses.dataclass
class Thing:
    """An object, its bytes as they were sent."""

    data: bytearray
    appendable: bool
    created: float
    modified: float


class MemoryStore:
    """Objects in a dictionary.

    ``faults`` holds what happens to the next writes, one entry each: ``"before"`` fails without doing it,
    ``"after"`` does it and fails, ``"lie"`` says that it was done, ``""`` does it.
    ``protected`` names what nobody may delete. ``requests`` counts by method.
    """

    def __init__(self, clock: collections.abc.Callable[[], float] = time.time) -> None:
        self.things: dict[str, Thing] = {}
        self.faults: list[str] = []
        self.protected: set[str] = set()
        self.requests: collections.Counter[str] = collections.Counter()
        self._clock = clock
        self._leases: dict[str, tuple[str, float]] = {}
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        return "memory"

    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> None:
        whole = bytearray(b"".join(data))
        with self._lock:
            self._write("put", name, lambda: self._make(name, whole, appendable=False))

    def create_append(self, name: str) -> None:
        with self._lock:
            self._write("create_append", name, lambda: self._make(name, bytearray(), appendable=True))

    def append(self, name: str, data: bytes, position: int) -> int:
        if len(data) > APPEND_MAX:
            raise ServiceError(f"{name}: {len(data)} bytes are too many")
        with self._lock:
            thing = self._thing(name)
            if not thing.appendable:
                raise ServiceError(f"{name} was not made to be appended to")
            if len(thing.data) != position:
                raise PositionConflict(f"{name} is {len(thing.data)} bytes long", len(thing.data))

            def extend() -> None:
                thing.data += data
                thing.modified = self._clock()

            self._write("append", name, extend)
            return position + len(data)

    def size(self, name: str) -> int:
        self.requests["size"] += 1
        return len(self._thing(name).data)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> collections.abc.Iterator[bytes]:
        self.requests["read"] += 1
        end = None if length is None else offset + length
        data = bytes(self._thing(name).data[offset:end])
        for at in range(0, len(data), 65536):
            yield data[at : at + 65536]

    def list(self, prefix: str) -> collections.abc.Iterator[Item]:
        self.requests["list"] += 1
        for name, thing in sorted(self.things.items()):
            if name.startswith(prefix):
                yield Item(name, len(thing.data), thing.modified, thing.created)

    def delete(self, name: str) -> None:
        self._thing(name)
        if name in self.protected:
            raise Forbidden(f"{name} is under a retention policy")
        self._write("delete", name, lambda: self.things.pop(name))

    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        if not LEASE_SECONDS[0] <= seconds <= LEASE_SECONDS[1]:
            raise ServiceError(f"{seconds} s is no time for a lease")
        with self._lock:
            if name not in self.things:
                self._make(name, bytearray(), appendable=False)
            held = self._leases.get(name)
            if held and held[1] > self._clock():
                raise LeaseLost(f"{held[0]} has the lease")
            identifier = f"{holder}-{self.requests['acquire']}"
            self.requests["acquire"] += 1
            self._leases[name] = (identifier, self._clock() + seconds)
        return _MemoryLease(self, name, seconds, identifier)

    def _make(self, name: str, data: bytearray, *, appendable: bool) -> None:
        if name in self.things:
            raise AlreadyThere(f"{name} is there already")
        now = self._clock()
        self.things[name] = Thing(data, appendable, now, now)

    def _thing(self, name: str) -> Thing:
        try:
            return self.things[name]
        except KeyError as error:
            raise NotThere(f"there is no {name}") from error

    def _write(self, method: str, name: str, write: collections.abc.Callable[[], object]) -> None:
        self.requests[method] += 1
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise ServiceError(f"{name}: 503", retryable=True)
        if fault == "lie":
            return
        write()
        if fault == "after":
            raise ServiceError(f"{name}: connection reset", retryable=True)


class _MemoryLease:
    def __init__(self, store: MemoryStore, name: str, seconds: int, identifier: str) -> None:
        self._store = store
        self._name = name
        self._seconds = seconds
        self._id = identifier

    @property
    def id(self) -> str:
        return self._id

    def renew(self) -> None:
        with self._store._lock:
            if self._store._leases.get(self._name, ("", 0))[0] != self._id:
                raise LeaseLost("another has the lease")
            self._store._leases[self._name] = (self._id, self._store._clock() + self._seconds)

    def release(self) -> None:
        with self._store._lock:
            if self._store._leases.get(self._name, ("", 0))[0] == self._id:
                del self._store._leases[self._name]
