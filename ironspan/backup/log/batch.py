# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The unit that waits for the store, in memory or on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ironspan.backup.log.inbox import cost
from ironspan.backup.records import Coalesced, Progress, Record, Revision

MAX_BYTES = 2 << 20
"""Of the records of one batch: two fit one append."""


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Some records in order.

    Attributes:
        first: the revision that the log needs before it, plus one.
        last: the last revision that is complete with it; ``first - 1`` where it completes none.
        begins_inside: its first events belong to a transaction that began in the batch before.
        ends_inside: its last events belong to a transaction that goes on in the next one.
        records: what there is.
        size: bytes that the records take in memory, about.
    """

    first: int
    last: int
    begins_inside: bool
    ends_inside: bool
    records: Sequence[Record]
    size: int


class Cutter:
    """Cuts a stream of records into batches; a part of a transaction always begins one. One thread.

    Args:
        next_revision: the first revision to come.
    """

    def __init__(self, next_revision: int) -> None:
        self._next = next_revision
        self._inside = False

    def cut(self, records: Iterable[Record]) -> Iterator[Batch]:
        """Yield the batches that these records make."""
        open_records: list[Record] = []
        size = 0
        for record in records:
            part = isinstance(record, Revision) and record.more
            needed = cost(record)
            if open_records and (part or self._inside or size + needed > MAX_BYTES):
                yield self._batch(open_records, size)
                open_records, size = [], 0
            open_records.append(record)
            size += needed
        if open_records:
            yield self._batch(open_records, size)

    def _batch(self, records: list[Record], size: int) -> Batch:
        first, inside = self._next, self._inside
        for record in records:
            if isinstance(record, (Revision, Coalesced)):
                self._inside = isinstance(record, Revision) and record.more
                if not self._inside:
                    self._next = record.revision + 1
            elif isinstance(record, Progress):
                self._next = max(self._next, record.revision + 1)
        return Batch(first, self._next - 1, inside, self._inside, tuple(records), size)
