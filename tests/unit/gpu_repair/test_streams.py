# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to racks of GPU nodes, and wherever the controller is killed, it keeps its limits."""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.gpu_repair import model
from ironspan.gpu_repair.limits import Limits, Window
from ironspan.gpu_repair.model import (
    AT_WORK,
    GATE_STATES,
    Decision,
    State,
    Step,
)
from tests.unit.gpu_repair.racks import DAY, POLICY, Racks, Refused, Storyteller

ENDS = (State.READY, State.TRIAGE, State.RMA)
"""RMA is where a person sends a node from triage."""
SEEDS = st.integers(0, 2**63)


class Keeper:
    """Checks each change against what the controller may do.

    Args:
        racks: what it changes.
        limits: what it may do.
    """

    def __init__(self, racks: Racks, limits: Limits) -> None:
        self.racks, self.limits = racks, limits
        self.tries: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)
        self.ids: set[str] = set()

    def carry_out(self, decision: Decision, most: int | None = None) -> None:
        """Do the first steps of a decision, and look after each."""
        assert len({step.node.name for step in decision.steps}) == len(decision.steps)
        for step in decision.steps[:most]:
            if step.record is None:
                assert step.node.state is State.DRAINING
                continue
            before, out = self.racks.taints(step.node.name), self.out()
            self.racks.carry_out(_only(decision, step))
            self._check(step, before, out)

    def out(self) -> int:
        """Return how many nodes that were at work are kept from it, by their taints."""
        return sum(
            node.record is not None
            and node.record.served
            and bool({model.REPAIR_TAINT, model.PREFLIGHT_TAINT} & set(self.racks.taints(node.name)))
            for node in self.racks.read()
        )

    def _check(self, step: Step, before: dict[str, str], out: int) -> None:
        racks, limits, name = self.racks, self.limits, step.node.name
        assert self.out() <= max(out, limits.out(len(racks.racks)))
        nodes = racks.read()
        busy = [node for node in nodes if node.state in AT_WORK]
        assert step.record is not None
        if step.record.state is State.DRAINING:
            assert len(busy) <= limits.most_at_once
            assert sum(node.rack == step.node.rack for node in busy) <= limits.most_per_rack
            assert step.record.reason and step.record.expires > racks.now
            assert step.record.evidence or step.record.aim
        taints = racks.taints(name)
        after = racks.node(name)
        if model.PREFLIGHT_TAINT in before and model.PREFLIGHT_TAINT not in taints:
            assert after.preflight is not None and after.preflight.passed
            assert after.preflight.boot == after.boot
        assert (after.state not in GATE_STATES) == (model.REPAIR_TAINT in taints)
        if after.state is State.READY:
            assert not after.by_change or step.node.by_change
        if step.action and step.action["do"] != "preflight":
            assert step.action["id"] not in self.ids
            self.ids.add(step.action["id"])
            self.tries[name].append((racks.now, step.action["do"]))
            lately = collections.Counter(
                do for at, do in self.tries[name] if racks.now - at <= limits.window_seconds
            )
            assert lately["reset"] <= limits.resets
            assert lately["reboot"] <= limits.reboots
        released = step.node.state in (State.TRIAGE, State.RMA) and step.record.state is State.RETEST
        if released or step.node.state is State.REPLACED:
            self.tries[name].clear()


def _only(decision: Decision, step: Step) -> Decision:
    return dataclasses.replace(decision, steps=[step])


def _told(seed: int) -> None:
    """Tell one story, with kills, frozen times and storms, and see how it ends."""
    chance = random.Random(seed)
    names = {f"n{i}": f"rack-{chance.randint(0, 2)}" for i in range(chance.randint(1, 9))}
    racks = Racks(names)
    story = Storyteller(racks, chance)
    windows = (Window(frozenset({0, 2, 5}), 1320, 240),) if chance.random() < 0.3 else ()
    limits = Limits(
        most_out=chance.randint(1, 5),
        most_out_percent=chance.choice([10, 34, 60]),
        most_at_once=chance.randint(1, 3),
        most_per_rack=chance.randint(1, 2),
        storm=chance.randint(1, 6),
        retest_seconds=chance.choice([DAY, 7 * DAY]),
        power=chance.random() < 0.7,
        windows=windows,
    )
    keeper = Keeper(racks, limits)
    for _ in range(40):
        racks.now += chance.choice([5, 5, 60, 600, 7200, DAY])
        story.faults()
        world: dict[str, t.Any] = {"frozen": "etcd has an alarm" if chance.random() < 0.2 else ""}
        world["released_until"] = racks.now + 60 if chance.random() < 0.2 else 0
        world["mode"] = model.GATE if chance.random() < 0.1 else model.REPAIR
        decision = racks.decide(limits, **world)
        if world["frozen"]:
            assert not decision.steps
        if world["mode"] == model.GATE:
            assert all(step.record and step.record.state in GATE_STATES for step in decision.steps)
        # It may be killed before any step, and another one begins from what is written.
        keeper.carry_out(decision, chance.choice([None, None, None, 0, 1]))
        story.life()
        if chance.random() < 0.2:
            # What was decided before and arrives late is refused where anything has changed.
            for step in decision.steps:
                if (
                    step.record
                    and racks.nodes[step.node.name]["metadata"]["resourceVersion"] != step.node.version
                ):
                    with pytest.raises(Refused):
                        racks.carry_out(_only(decision, step))
    # Nothing breaks any more. Agents, pods and people may do nothing at all.
    for _ in range(120):
        racks.now += chance.choice([600, DAY / 2])
        keeper.carry_out(racks.decide(limits))
        if chance.random() < 0.5:
            story.life()
        if all(node.state in ENDS for node in racks.read()):
            return
    raise AssertionError({node.name: (node.state, node.record) for node in racks.read()})


@given(SEEDS)
@settings(max_examples=150)
def test_any_stream_of_events_keeps_the_limits_and_ends(seed: int) -> None:
    """Some hundred of them in each run."""
    _told(seed)


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=10_000)
def test_ten_thousand_streams_of_events_keep_the_limits_and_end(seed: int) -> None:
    """The figure that issue 25 asks for."""
    _told(seed)


@given(st.integers(1, 25), st.integers(1, 60), SEEDS)
@settings(max_examples=25)
def test_a_storm_drains_the_budget_and_no_more(most: int, percent: int, seed: int) -> None:
    """All of 25 nodes fall off the bus at once."""
    racks = Racks({f"n{i:02}": f"rack-{i % 5}" for i in range(25)})
    limits = Limits(most_out=most, most_out_percent=percent, most_at_once=25, most_per_rack=25, storm=25)
    for name in racks.racks:
        racks.see(name)
    racks.go(limits)
    for name in racks.racks:
        racks.event(name, "xid 79")
    for _ in range(5):
        decision = racks.go(limits)
    drained = [node for node in racks.read() if node.state not in GATE_STATES]
    assert len(drained) == limits.out(25) == min(most, max(1, 25 * percent // 100))
    assert len(decision.waiting) == 25 - len(drained)


def test_a_storm_above_its_number_waits_for_two_people() -> None:
    """Nodes are cordoned within the budget, none is drained; released, they are, within all limits."""
    racks = Racks({f"n{i:02}": f"rack-{i % 5}" for i in range(25)})
    limits = Limits(most_out=10, most_out_percent=60, most_at_once=3, storm=8)
    racks.go(limits)
    for name in racks.racks:
        racks.event(name, "xid 79")
    for _ in range(5):
        decision = racks.go(limits)
    assert decision.storm == 25
    states = collections.Counter(node.state for node in racks.read())
    assert states == {State.SUSPECT: 10, State.READY: 15}
    for _ in range(5):
        decision = racks.go(limits, released_until=racks.now + 3600)
    states = collections.Counter(node.state for node in racks.read())
    assert states[State.READY] == 15
    assert sum(states[state] for state in AT_WORK) == 3


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["event", "gpu", "boot", "id", "ok", "passed", "results", "test", "gpus", "uuid", "x"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from([model.EVENTS, model.SEEN, model.PREFLIGHT, model.DONE]),
        ANY.map(json.dumps) | st.text(max_size=60),
    ),
    SEEDS,
)
@settings(max_examples=300)
def test_what_a_node_lies_concerns_it_alone(lies: dict[str, str], seed: int) -> None:
    """Whatever it writes into its own annotations, the steps about others are the same."""
    limits = Limits(most_out=100, most_out_percent=99, most_at_once=100, most_per_rack=100, storm=1000)
    chance = random.Random(seed)
    racks = Racks({f"n{i}": "rack" for i in range(5)})
    for name in racks.racks:
        racks.see(name)
    racks.go(limits)
    for name in list(racks.racks)[1:]:
        racks.event(name, chance.choice(list(POLICY)))
    before = racks.decide(limits)
    racks.write("n0", lies)
    after = racks.decide(limits)
    assert [step for step in after.steps if step.node.name != "n0"] == [
        step for step in before.steps if step.node.name != "n0"
    ]
    racks.carry_out(after)


@given(st.text(max_size=80) | ANY.map(json.dumps))
@settings(max_examples=200)
def test_a_damaged_record_takes_the_node_to_a_person(text: str) -> None:
    """Nothing is guessed about where it was."""
    racks = Racks({"n0": "rack"})
    racks.write("n0", {model.RECORD: text or "?"})
    racks.go()
    assert racks.state("n0") is State.TRIAGE
