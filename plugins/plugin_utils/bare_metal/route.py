# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The shortest way between two of Ironic's states that wipes and interrupts least."""

from __future__ import annotations

import functools
import heapq
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states as ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_states import Move


class Route(t.NamedTuple):
    """What decides which moves there are, beside the state.

    Args:
        adopt: nothing may be wiped, and what runs may be adopted.
        retired: what is taken down ends as manageable, not as available.
        cleans: whether Ironic erases disks by itself.
    """

    adopt: bool
    retired: bool
    cleans: bool

    def wipes(self, move: Move) -> bool:
        """Return whether a move takes what is on the disks."""
        return move.wipes and (self.cleans or move.verb != "provide")


@functools.cache
def route(state: str, goals: tuple[str, ...], along: Route) -> tuple[Move, ...] | None:
    """Return the moves to the nearest of some states, None when there is no way.

    Wiping is further than any way without, interrupting what runs is further than any way without.

    Args:
        state: where to begin, one that stays.
        goals: where to end.
        along: which moves there are.
    """
    ways: list[tuple[int, int, str, tuple[Move, ...]]] = [(0, 0, state, ())]
    seen: set[str] = set()
    number = 0
    while ways:
        cost, _, here, moves = heapq.heappop(ways)
        if here in goals:
            return moves
        if here in seen:
            continue
        seen.add(here)
        for move in ironic.MOVES.get(here, ()):
            if (move.verb == "adopt") > along.adopt or (along.adopt and along.wipes(move)):
                continue
            number += 1
            to = "manageable" if move.verb == "deleted" and along.retired else move.to
            more = 1 + 100 * move.interrupts + 10_000 * along.wipes(move)
            heapq.heappush(ways, (cost + more, number, to, (*moves, move)))
    return None
