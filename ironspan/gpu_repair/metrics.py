# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from the program; one that does not act (``leader``) keeps figures of before."""

from __future__ import annotations

import collections

from ironspan.gpu_repair.controller import Passed
from ironspan.gpu_repair.model import State
from ironspan.program import metrics

PREFIX = "ironspan_gpu_repair"


class Metrics(metrics.Metrics):
    """The program's metrics, besides those of every program."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        self._in_state = self.gauge("nodes", "GPU nodes in each state.", "state")
        self._led_to = self.counter("steps", "Steps that were done, by the state they lead to.", "state")
        for state in State:
            self._in_state.labels(state)
            self._led_to.labels(state)
        self._out = self.gauge("out_nodes", "Nodes that are kept out of service.")
        self._most_out = self.gauge("most_out_nodes", "How many may be.")
        self._waiting = self.gauge("waiting_nodes", "Nodes that need something and wait.")
        self._storm = self.gauge("storm_nodes", "Nodes that wait for two people.")
        self._frozen = self.gauge("frozen", "1 while nothing may be done.")
        self._missing = self.gauge(
            "missing_nodes", "GPU nodes of the inventory that the cluster does not have."
        )

    def passed(self, passed: Passed, wanted: int) -> None:
        """Take what a pass found and did.

        Args:
            passed: of the pass.
            wanted: how many GPU nodes the inventory has.
        """
        states = collections.Counter(node.state for node in passed.nodes)
        for state in State:
            self._in_state.labels(state).set(states[state])
        for step in passed.done:
            if step.record is not None and step.record.state is not step.node.state:
                self._led_to.labels(step.record.state).inc()
        self._out.set(passed.decision.out)
        self._most_out.set(passed.decision.most_out)
        self._waiting.set(len(passed.decision.waiting))
        self._storm.set(passed.decision.storm)
        self._frozen.set(bool(passed.world.frozen))
        self._missing.set(wanted - len(passed.nodes))
