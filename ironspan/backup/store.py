# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a place for backups offers. Implementations differ in nothing that tests can see."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing as t

from ironspan.program.leader import Lease

APPEND_MAX = 4 * 1024 * 1024
"""Bytes of one append: the block size of append blobs in every version of the service's API."""
BLOCKS_MAX = 45_000
"""Appends to one object: the service ends at 50,000 (scalability targets of Azure Blob storage)."""
LEASE_SECONDS = (15, 60)
"""Shortest and longest lease that is not endless (Lease Blob, Azure Blob storage)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """An object in a store; times are seconds since 1970, of the store's clock."""

    name: str
    size: int
    modified: float
    created: float


class Store(t.Protocol):
    """Objects by name. Names use ``/`` and are given without the store's own prefix.

    Every method raises ServiceError; ``retryable`` says that the same call may succeed later.
    """

    @property
    def name(self) -> str:
        """What the store is called in messages."""

    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> None:
        """Make an object of these bytes, whole or not at all. Raises AlreadyThere; nothing is replaced."""

    def create_append(self, name: str) -> None:
        """Make an empty object that ``append`` extends. Raises AlreadyThere."""

    def append(self, name: str, data: bytes, position: int) -> int:
        """Extend an object and return its new length.

        The data lands whole and exactly at byte ``position``, or PositionConflict (or NotThere) is raised.
        After a retryable ServiceError the outcome is unknown: sending the same bytes for the same position
        again is safe, and PositionConflict then tells that they may have landed.

        Args:
            name: of an object that ``create_append`` made.
            data: at most APPEND_MAX bytes.
            position: the object's length as the caller knows it.
        """

    def size(self, name: str) -> int:
        """Return an object's length in bytes. Raises NotThere."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> collections.abc.Iterator[bytes]:
        """Yield an object's bytes, all that there are beyond ``offset`` or ``length`` of them.

        An object that ends before ``offset + length`` ends the reading there. Raises NotThere, and a
        retryable ServiceError when the transfer broke off.
        """

    def list(self, prefix: str) -> collections.abc.Iterator[Item]:
        """Yield what begins with ``prefix``, sorted by name."""

    def delete(self, name: str) -> None:
        """Delete an object. Raises NotThere, and Forbidden where the identity or a policy says so."""

    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        """Take the lease of an object, which is made if it is missing.

        Args:
            name: of the object.
            seconds: 15 to 60; after these without ``renew`` another may take it.
            holder: who asks, for messages.

        Raises:
            LeaseLost: another holds it.
        """
