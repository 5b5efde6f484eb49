# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Agents that fell silent: a Node whose agent writes nothing says only how its GPUs were before."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ironspan.gpu_repair.model import Event, Node
from ironspan.gpu_repair.reading import Object, condition
from ironspan.program.lasting import Lasting

LOG = logging.getLogger(__name__)
SILENT = "nvml agent_silent"
LOOK_S = 10.0
"""The most that counts between two looks, which are some seconds apart."""
MOST_PERCENT = 33
"""With more agents silent than that it is a release, a setting or the link, and not these nodes."""


class Agents:
    """Remembers for how long each agent was not heard, by this host's own clock: clocks are not compared.

    Time in which nobody looked says nothing: while the API server is away, agents cannot write either.

    Args:
        seconds: without a word of its agent, while its kubelet is well, until a node counts as silent.
        clock: seconds that only grow.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._heard: dict[str, tuple[str, float]] = {}
        self._looked = clock()
        self._many = Lasting(LOG)

    def told(self, nodes: Sequence[Node], found: Mapping[str, Object]) -> list[Node]:
        """Return the nodes, with an event for each whose agent is silent.

        A node whose agent never wrote has none. While a node is not ready nobody on it could write.

        Args:
            nodes: as they were read.
            found: their objects, by name.
        """
        now = self._clock()
        passed, self._looked = min(now - self._looked, LOOK_S), now
        silent: dict[str, str] = {}
        for node in nodes:
            word = str(condition(found[node.name], "GPUHealthy").get("lastHeartbeatTime", ""))
            before, seconds = self._heard.get(node.name, ("", 0.0))
            heard = not word or word != before or not node.ready
            seconds = 0.0 if heard else seconds + passed
            self._heard[node.name] = (word, seconds)
            if word and seconds >= self._seconds:
                silent[node.name] = f"its agent wrote nothing since {word}"
        many = len(silent) > 1 and len(silent) * 100 > MOST_PERCENT * len(nodes)
        self._many.tell(
            f"The agents of {len(silent)} of {len(nodes)} GPU nodes are silent: none is taken out of service."
            if many
            else None
        )
        if many:
            return list(nodes)
        return [
            replace(node, events=(*node.events, Event(SILENT, detail=silent[node.name])))
            if node.name in silent
            else node
            for node in nodes
        ]
