# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which segments of a log count, of those that its writers have begun."""

from __future__ import annotations

import itertools
import typing as t

from ironspan.backup.catalogue import Segment
from ironspan.backup.errors import ChainError
from ironspan.backup.frame import Header, altered, end_of, first_header
from ironspan.backup.store import Store

Headed = tuple[Segment, Header | ChainError]
"""A segment and its first header, or why it has none."""


def onward(store: Store, segments: t.Sequence[Segment], reached: int) -> t.Sequence[Segment]:
    """Return the segments from the one on that has what follows a revision.

    Args:
        store: where they are.
        segments: of an epoch, by number.
        reached: the revision.
    """
    start = max((i for i, one in enumerate(segments) if one.first_revision <= reached + 1), default=0)
    for segment in reversed(segments[: start + 1]):
        rest = [one for one in segments if one.number >= segment.number]
        first, _ = next(written(store, rest), (None, None))
        if first and first.number == segment.number and first.first_revision <= reached + 1:
            return rest
    return segments


def written(store: Store, segments: t.Sequence[Segment]) -> t.Iterator[Headed]:
    """Yield the segments that count of those that something was written to: one of each number.

    Writers that took over at the same time have each begun one. The next writer went on from one of them;
    where there is none yet, it will from the one that reaches furthest (``take_over``).

    Args:
        store: where they are.
        segments: of an epoch, by number.
    """
    for number, same in itertools.groupby(segments, key=lambda segment: segment.number):
        found = list(headed(store, same))
        if len(found) > 1:
            later = headed(store, (one for one in segments if one.number > number))
            named = next((header.before for _, header in later if isinstance(header, Header)), "")
            found.sort(key=lambda one: (one[0].name == named, _reach(store, *one)))
        yield from found[-1:]


def _reach(store: Store, segment: Segment, header: Header | ChainError) -> int:
    return end_of(store, segment.name) if isinstance(header, Header) else -1


def headed(store: Store, segments: t.Iterable[Segment]) -> t.Iterator[Headed]:
    """Yield the segments that something was written to, with their first header or why it has none."""
    for segment in segments:
        try:
            header = first_header(store, segment.name)
        except ChainError as error:
            yield segment, error
            continue
        if header is None and segment.item.size:
            yield segment, altered(segment.name, "its first frame is cut off")
        elif header is not None and not header.sealed:
            yield segment, header
