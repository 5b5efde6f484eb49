# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which segments of a log count, of those that its writers have begun."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ironspan.backup.catalogue import AT_ONCE, Catalogue, Segment
from ironspan.backup.ends import end_of, holds_ours
from ironspan.backup.errors import ChainError
from ironspan.backup.frame import Header, altered, first_header
from ironspan.backup.proof import Proof
from ironspan.backup.store import Store
from ironspan.program.errors import NotThere

LOG = logging.getLogger(__name__)

Headed = tuple[Segment, Header | ChainError]
"""A segment and its first header, or why it has none."""


def onward(store: Store, segments: t.Sequence[Segment], reached: int, proof: Proof) -> t.Sequence[Segment]:
    """Return the segments from the one on that has what follows a revision.

    Args:
        store: where they are.
        segments: of an epoch, by number.
        reached: the revision.
        proof: says whose segments count.
    """
    start = max((i for i, one in enumerate(segments) if one.first_revision <= reached + 1), default=0)
    for segment in reversed(segments[: start + 1]):
        rest = [one for one in segments if one.number >= segment.number]
        first, _ = next(written(store, rest, proof), (None, None))
        if first and first.number == segment.number and first.first_revision <= reached + 1:
            return rest
    return segments


def written(store: Store, segments: t.Sequence[Segment], proof: Proof) -> t.Iterator[Headed]:
    """Yield the segments that count of those that something was written to: one of each number.

    Writers that took over at the same time have each begun one. The next writer went on from one of them;
    where there is none yet, it will from the one that reaches furthest (``take_over``).

    Args:
        store: where they are.
        segments: of an epoch, by number.
        proof: says whose segments count.
    """
    for number, same in itertools.groupby(segments, key=lambda segment: segment.number):
        found = list(headed(store, same, proof, segments))
        if len(found) > 1:
            later = headed(store, (one for one in segments if one.number > number), proof)
            named = next((header.before for _, header in later if isinstance(header, Header)), "")
            found.sort(key=lambda one: (one[0].name == named, _reach(store, one[0], one[1], proof)))
        yield from found[-1:]


def known_segments(store: Store, found: Catalogue, known: set[str] | None = None) -> Catalogue:
    """Return a catalogue with those segments only that the site wrote something to, if only their end.

    The others are among what is damaged; an empty one is neither: a writer may just have begun it.

    Args:
        store: where it was read.
        found: the catalogue.
        known: names that an earlier look found to be the site's; those that this one finds are added.
    """
    known = set() if known is None else known
    problems: dict[str, str] = {}

    def look(segment: Segment) -> bool:
        if segment.name in known:
            return True
        try:
            if first_header(store, segment.name, found.names.proof) is None:
                if segment.item.size:
                    problems[segment.name] = "its first frame is cut off"
                return False
        except NotThere:
            return False
        except ChainError as error:
            problems[segment.name] = error.message
            return False
        known.add(segment.name)
        return True

    with ThreadPoolExecutor(AT_ONCE) as readers:
        ours = readers.map(look, found.segments)
        segments = tuple(one for one, is_ours in zip(found.segments, ours, strict=True) if is_ours)
    return dataclasses.replace(found, segments=segments, damaged=found.damaged | problems)


def _reach(store: Store, segment: Segment, header: Header | ChainError, proof: Proof) -> int:
    return end_of(store, segment.name, proof) if isinstance(header, Header) else -1


def headed(
    store: Store, segments: t.Iterable[Segment], proof: Proof, later: t.Sequence[Segment] = ()
) -> t.Iterator[Headed]:
    """Yield the segments that the site wrote something to, with their first header or why it has none.

    Args:
        store: where they are.
        segments: of an epoch, by number.
        proof: says whose segments count.
        later: those behind them: what one of these goes on from is ours, even where nothing in it shows it.
    """
    for segment in segments:
        error: ChainError | None = None
        try:
            header = first_header(store, segment.name, proof)
        except ChainError as found:
            header, error = None, found
        if header is None and error is None and segment.item.size:
            error = altered(segment.name, "its first frame is cut off")
        if error is not None:
            behind = (one for one in later if one.number > segment.number)
            if holds_ours(store, segment.name, proof) or any(
                isinstance(one, Header) and one.before == segment.name
                for _, one in headed(store, behind, proof)
            ):
                yield segment, error
            else:
                LOG.info("%s in %s is left out: %s", segment.name, store.name, error.message)
        elif header is not None and not header.sealed:
            yield segment, header
