# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds where the log ends and keeps every earlier writer from extending it there."""

from __future__ import annotations

import collections.abc
import typing as t

from ironspan.backup.errors import PositionConflict, StoreError
from ironspan.backup.frame import Header, build, last_frame
from ironspan.backup.names import LogName, Names
from ironspan.backup.store import Item, Store


class LogEnd(t.NamedTuple):
    """Where an epoch's log ends, with nobody able to extend it there any more."""

    number: int
    """Of the last segment; 0 when the epoch has none."""
    name: str
    digest: str
    revision: int
    """The last complete one; 0 when the log has none."""
    time_ms: int
    behind: bool = False
    """See ``Header.behind``."""


def segments_of(store: Store, names: Names, epoch: int) -> collections.abc.Iterator[tuple[Item, LogName]]:
    """Yield an epoch's log segments with what their names say, sorted by name."""
    for item in store.list(names.logs(epoch)):
        if parsed := names.parse_log(item.name):
            yield item, parsed


def take_over(store: Store, names: Names, epoch: int, holder: str) -> LogEnd:
    """Seal the epoch's last segment against its writer and return where the log ends.

    Whoever calls this holds the lease. A former writer that does not know yet that it lost the lease finds
    its next append refused, because the segment is longer than it believes. Where the last segment is torn
    or altered the log ends with the last frame that is whole, and what comes behind it can be written again.

    Args:
        store: the store.
        names: of the site.
        epoch: the newest one.
        holder: who seals, for people who read the log.

    Raises:
        StoreError: the store failed; calling again is safe.
    """
    numbered: dict[int, list[str]] = {}
    for item, parsed in segments_of(store, names, epoch):
        numbered.setdefault(parsed.number, []).append(item.name)
    top = max(numbered, default=0)
    for number in sorted(numbered, reverse=True):
        ends = [end for name in numbered[number] if (end := _seal(store, name, number, holder))]
        if ends:
            return max(ends, key=lambda end: end.revision)._replace(number=top)
    return LogEnd(top, "", "", 0, 0)


def _seal(store: Store, name: str, number: int, holder: str) -> LogEnd | None:
    """Seal one segment; None when it holds nothing that the log goes on from."""
    while True:
        length = store.size(name)
        last, clean = last_frame(store, name)
        if clean and length != (last.end if last else 0):
            continue
        if last is None:
            header = Header(0, "", 1, 0, 0, sealed=True, holder=holder)
        elif last.header.sealed:
            return _end(last.header, last.digest, name, number)
        else:
            old = last.header
            header = Header(
                old.number + 1,
                last.digest,
                old.last + 1,
                old.last,
                old.time_ms,
                sealed=True,
                holder=holder,
                behind=old.behind,
            )
        data, digest = build(header)
        try:
            store.append(name, data, length)
        except PositionConflict:
            continue
        if store.size(name) < length + len(data):
            raise StoreError(
                f"{store.name} acknowledged the end of {name} and does not have it.", retryable=True
            )
        # No reader gets beyond a cut, so there the log goes on from the last whole frame.
        return _end(header, digest if clean or last is None else last.digest, name, number)


def _end(header: Header, digest: str, name: str, number: int) -> LogEnd | None:
    if header.sealed and header.number == 0:
        return None
    return LogEnd(number, name, digest, header.last, header.time_ms, header.behind)
