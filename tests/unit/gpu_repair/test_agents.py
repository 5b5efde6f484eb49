# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Agents that fell silent: their nodes are taken out of service, unless it is something that all have."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from ironspan.gpu_repair.agents import SILENT, Agents
from ironspan.gpu_repair.decide import decide
from ironspan.gpu_repair.limits import Limits
from ironspan.gpu_repair.model import Node, Record, Rule, State, World

SECONDS = 900.0
NAMES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")


class Fleet:
    """GPU nodes, and a clock that the test turns on."""

    def __init__(self) -> None:
        self.now = 5000.0
        self.agents = Agents(SECONDS, lambda: self.now)
        self.words = dict.fromkeys(NAMES, "2026-11-27T00:00:00Z")
        self.down: set[str] = set()

    def look(self, seconds: float = 0.0, every: float = 3.0) -> list[Node]:
        """Let time pass, and look at all nodes again and again."""
        while seconds > every:
            self.look(every, every)
            seconds -= every
        self.now += seconds
        nodes = [Node(name, ready=name not in self.down) for name in NAMES]
        found: dict[str, dict[str, t.Any]] = {name: {} for name in NAMES}
        for name, word in self.words.items():
            conditions = [{"type": "GPUHealthy", "lastHeartbeatTime": word}] if word else []
            found[name] = {"status": {"conditions": conditions}}
        return self.agents.told(nodes, found)

    def speak(self, *names: str) -> None:
        """Let agents write."""
        for name in names:
            self.words[name] = f"{self.now}"

    def silent(self, seconds: float = 0.0) -> list[str]:
        """Return who is silent after a while."""
        return [node.name for node in self.look(seconds) if node.events]


def test_one_that_writes_nothing_is_silent_and_one_that_writes_again_is_not() -> None:
    fleet = Fleet()
    assert fleet.silent() == []
    fleet.speak(*NAMES[1:])
    assert fleet.silent(SECONDS - 1) == []
    assert fleet.silent(1) == ["gpu-1"]
    (event,) = fleet.look()[0].events
    assert (event.key, event.detail) == (SILENT, "its agent wrote nothing since 2026-11-27T00:00:00Z")
    fleet.speak("gpu-1")
    assert fleet.silent() == []


def test_who_never_wrote_or_whose_node_is_down_is_not_silent() -> None:
    fleet = Fleet()
    fleet.words["gpu-1"] = ""
    fleet.look()
    fleet.down = {"gpu-2"}
    fleet.speak("gpu-3", "gpu-4")
    assert fleet.silent(2 * SECONDS) == []
    # Up again, its agent has its whole time.
    fleet.down = set()
    fleet.speak("gpu-3", "gpu-4")
    assert fleet.silent(SECONDS - 1) == []
    fleet.speak("gpu-3", "gpu-4")
    assert fleet.silent(1) == ["gpu-2"]


def test_a_controller_that_has_just_begun_waits_the_whole_time() -> None:
    fleet = Fleet()
    fleet.look()
    fleet.speak(*NAMES[1:])
    assert fleet.silent(SECONDS) == ["gpu-1"]
    fleet.agents = Agents(SECONDS, lambda: fleet.now)
    assert fleet.silent() == []


def test_an_hour_in_which_nobody_could_write_or_look_is_no_silence() -> None:
    """The API server was away; the first look may come before an agent has written again."""
    fleet = Fleet()
    fleet.look()
    # The others were faster.
    fleet.speak(*NAMES[1:])
    assert [node.name for node in fleet.look(3600.0, every=3600.0) if node.events] == []
    fleet.speak(*NAMES[1:])
    assert fleet.silent(SECONDS) == ["gpu-1"], "it still writes nothing"


def test_many_at_once_are_no_fault_of_nodes() -> None:
    fleet = Fleet()
    fleet.look()
    assert fleet.silent(SECONDS) == []
    fleet.speak(*NAMES[1:])
    assert fleet.silent() == ["gpu-1"]


def test_a_silent_node_is_cordoned_and_waits_and_the_site_may_switch_that_off() -> None:
    fleet = Fleet()
    fleet.look()
    fleet.speak(*NAMES[1:])
    known = Record(State.READY, 0.0, served=True)
    nodes = [replace(node, record=known) for node in fleet.look(SECONDS)]
    world = World(1e9, "repair", "")
    policy = {event: Rule(action) for event, action in shipped().classes().items()}
    (step,) = decide(nodes, world, policy, Limits()).steps
    assert step.record is not None
    assert (step.node.name, step.record.state, step.record.cordoned) == ("gpu-1", State.SUSPECT, True)
    waiting = decide([replace(nodes[0], record=step.record), *nodes[1:]], world, policy, Limits()).waiting
    assert waiting == {"gpu-1": "no repair puts this right, a person does: see ironspan gpu why"}
    assert decide(nodes, world, {**policy, SILENT: Rule("A0")}, Limits()).steps == []
