# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds where the log ends and keeps every earlier writer from extending it there."""

from __future__ import annotations

import collections.abc
import contextlib
import logging
import typing as t

from ironspan.backup.ends import last_frame
from ironspan.backup.errors import ChainError, PositionConflict
from ironspan.backup.frame import Header, build, first_frame
from ironspan.backup.names import LogName, Names
from ironspan.backup.proof import Proof
from ironspan.backup.store import Item, Store
from ironspan.program.errors import ServiceError

LOG = logging.getLogger(__name__)


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
        ServiceError: the store failed; calling again is safe.
    """
    numbered: dict[int, list[str]] = {}
    for item, parsed in segments_of(store, names, epoch):
        numbered.setdefault(parsed.number, []).append(item.name)
    ours = [
        number
        for number, same in numbered.items()
        if any(_first(store, name, names.proof) is not None for name in same)
    ]
    top = max(ours, default=0)
    # One that a writer has begun and not written to is among these; behind a free number there is none.
    while top + 1 in numbered:
        top += 1
    for number in sorted(numbered, reverse=True):
        if number > top:
            LOG.warning("%s in %s was not written by this site", numbered[number], store.name)
            continue
        sealed = [_seal(store, name, number, holder, names.proof) for name in numbered[number]]
        if ends := [end for end in sealed if end]:
            return max(ends, key=lambda end: end.revision)._replace(number=top)
    return LogEnd(top, "", "", 0, 0)


def in_the_way(store: Store, names: Names, epoch: int, name: str, number: int) -> bool:
    """Say whether another writer has begun a segment beside or behind one, or may have.

    Args:
        store: where they are.
        names: of the site.
        epoch: theirs.
        name: of the one.
        number: of the one.
    """
    for item, parsed in segments_of(store, names, epoch):
        if item.name == name or parsed.number < number:
            continue
        if parsed.number == number or _first(store, item.name, names.proof) is not None:
            return True
    return False


def _first(store: Store, name: str, proof: Proof) -> Header | None:
    """Return a segment's first header if the site wrote it."""
    with contextlib.suppress(ChainError):
        frame = first_frame(store, name, proof)
        return frame.header if frame is not None else None
    return None


def _seal(store: Store, name: str, number: int, holder: str, proof: Proof) -> LogEnd | None:
    """Seal one segment; None when it holds nothing that the log goes on from."""
    while True:
        length = store.size(name)
        last, clean = last_frame(store, name, proof)
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
        if not clean:
            LOG.warning("%s in %s ends with what was not written by this site", name, store.name)
        data, digest = build(header, name, proof)
        try:
            store.append(name, data, length)
        except PositionConflict:
            continue
        except ServiceError as error:
            if last is None and not error.retryable:
                # No writer of ours can have made it: nothing can be appended to it.
                LOG.warning("%s in %s is no segment: %s", name, store.name, error)
                return None
            raise
        if store.size(name) < length + len(data):
            raise ServiceError(
                f"{store.name} acknowledged the end of {name} and does not have it.", retryable=True
            )
        # No reader gets beyond a cut, so there the log goes on from the last whole frame.
        return _end(header, digest if clean or last is None else last.digest, name, number)


def _end(header: Header, digest: str, name: str, number: int) -> LogEnd | None:
    if header.sealed and header.number == 0:
        return None
    return LogEnd(number, name, digest, header.last, header.time_ms, header.behind)
