# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is simulated, and what was measured."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from tests.support.simulation import metrics


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to simulate.

    Args:
        nodes: how many join.
        planned: the size that the site says it will have; 0 for as many as join.
        with_profile: the API server gets what the size's profile says; else what a small site gets.
        events_apart: events get an etcd of their own.
        fsync: etcd waits for the disk, as it must wherever the data matter.
        pods_per_node: started after the nodes have joined.
        watchers: nodes whose flannel watches all nodes.
        pod_watches: nodes whose kubelet watches its pods.
        seconds: of the phase in which nothing happens but heartbeats.
        at_once: nodes that join at the same time; 0 for what the profile says.
        patience: seconds for one node to become Ready.
    """

    nodes: int = 1000
    planned: int = 0
    with_profile: bool = True
    events_apart: bool = False
    fsync: bool = True
    pods_per_node: int = 5
    watchers: int = 100
    pod_watches: int = 0
    seconds: float = 120
    at_once: int = 0
    patience: float = 120


@dataclasses.dataclass(frozen=True)
class Phase:
    """What was measured in one phase.

    Args:
        name: of the phase.
        seconds: it took.
        cpu: seconds of CPU that each program used.
        counters: by how much the API server's counters grew.
        requests: how long requests took.
    """

    name: str
    seconds: float
    cpu: dict[str, float]
    counters: dict[str, float]
    requests: list[metrics.Row]

    def rate(self, verb: str, resource: str) -> float:
        """Return how many requests of a kind were answered in a second."""
        return sum(r.count for r in self.requests if (r.verb, r.resource) == (verb, resource)) / self.seconds


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a simulation measured.

    Args:
        plan: what was simulated.
        at_once: nodes that joined at the same time.
        flags: of the API server.
        phases: join, pods and quiet.
        flaps: nodes that were Ready and then were not, once for each time.
        node_changes: changes of Nodes that one watch was told while they joined, for each node.
        watches: open at the end, by resource.
        objects: in the API at the end, by resource.
        etcd_bytes: size of each etcd's file.
        memory: MiB of each program at the end, and at most.
    """

    plan: Plan
    at_once: int
    flags: dict[str, str]
    phases: list[Phase]
    flaps: list[str]
    node_changes: float
    watches: dict[str, int]
    objects: dict[str, int]
    etcd_bytes: dict[str, int]
    memory: dict[str, tuple[float, float]]

    def phase(self, name: str) -> Phase:
        """Return a phase by its name."""
        return next(phase for phase in self.phases if phase.name == name)

    def as_json(self) -> str:
        """Return everything, floats with three digits."""
        return json.dumps(_round(dataclasses.asdict(self)), indent=1)


def _round(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _round(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_round(inner) for inner in value]
    return metrics.rounded(value)
