# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is due about all GPU nodes: asks nobody and changes nothing.

A node's own words concern that node alone. How many nodes there are and in which racks comes from the
inventory, and what is out of service from what the controller itself has written.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Sequence
from dataclasses import replace

from ironspan.gpu_repair import moves
from ironspan.gpu_repair.limits import Limits, Window
from ironspan.gpu_repair.model import (
    AT_WORK,
    GATE,
    GATE_STATES,
    LOOK,
    RECORD,
    Decision,
    Node,
    Record,
    State,
    Step,
    World,
)
from ironspan.gpu_repair.moves import Case
from ironspan.gpu_repair.needs import Need, Policy, aim, gpu_of, is_lost

DISRUPTS = "A2", "A3", "A4"


def decide(nodes: Sequence[Node], world: World, policy: Policy, limits: Limits) -> Decision:
    """Return what is due.

    Args:
        nodes: all GPU nodes of the inventory that the cluster has.
        world: the time, and whether anything may be done.
        policy: the rule of each event.
        limits: what may be done at most.

    Returns:
        At most one step a node. None when the world is frozen.
    """
    return _Pass(nodes, world, policy, limits).run()


def asks_for_pods(nodes: Sequence[Node], world: World, policy: Policy, limits: Limits) -> list[str]:
    """Return the nodes whose pods have to be known: those that are drained, and those to test next."""
    drained = [node.name for node in nodes if node.state is State.DRAINING]
    due = _Pass(nodes, world, policy, limits).due_for_a_test()
    return drained + [case.node.name for case in due[: 2 * limits.most_tested]]


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Tell whether repairs may begin now."""
    at = time.gmtime(now)
    minute, today = at.tm_hour * 60 + at.tm_min, at.tm_wday
    for window in windows:
        through = window.end <= window.start
        if today in window.days and window.start <= minute and (through or minute < window.end):
            return True
        if through and (today - 1) % 7 in window.days and minute < window.end:
            return True
    return not windows


class _Pass:
    """One look at all nodes."""

    def __init__(self, nodes: Sequence[Node], world: World, policy: Policy, limits: Limits) -> None:
        self._world, self._policy, self._limits = world, policy, limits
        self._cases = [self._case(node) for node in sorted(nodes, key=lambda node: node.name)]
        self._most_out = limits.out(len(nodes))
        self._out = sum(_is_out(case) for case in self._cases)
        busy = [case for case in self._cases if case.node.record and case.record.state in AT_WORK]
        self._busy = len(busy)
        self._racks = collections.Counter(case.node.rack for case in busy)
        self._tested = sum(bool(case.record.asked) for case in self._cases if _is(case, State.READY))
        self._steps: list[Step] = []
        self._waiting: dict[str, str] = {}

    def run(self) -> Decision:
        """Decide about all nodes: those in repair, then those that are the worst."""
        storm = self._storm()
        if not self._world.frozen:
            for case in self._cases:
                self._go_on(case)
            for found, case in self._in_need(State.SUSPECT):
                self._suspect(case, found, storm)
            for found, case in self._in_need(State.READY):
                self._ready(case, found)
            self._tests()
        return Decision(self._steps, self._waiting, self._out, self._most_out, self._busy, storm)

    def due_for_a_test(self) -> list[Case]:
        """Return ready nodes whose preflight is old, the oldest first."""
        due = [
            (since, case.node.name, case)
            for case in self._cases
            if _is(case, State.READY) and case.node.ready and not case.record.asked and case.node.record
            if self._world.now - (since := _tested(case.record)) >= self._limits.retest_seconds
        ]
        return [case for _, _, case in sorted(due, key=lambda each: each[:2])]

    def _case(self, node: Node) -> Case:
        record = node.record or Record(node.state, self._world.now)
        return Case(node, record, self._policy, self._limits, self._world.now)

    def _do(self, step: Step | None) -> None:
        if step is None:
            return
        if self._world.mode == GATE:
            to = step.record.state if step.record else State.DRAINING
            if not {to, step.node.state} <= GATE_STATES or step.node.held:
                self._waiting[step.node.name] = f"the mode is {GATE}: {step.why}"
                return
        if step.record and step.record.state in AT_WORK and step.node.state not in AT_WORK:
            # A node that leaves counts until it has left: its step may be refused.
            self._busy += 1
            self._racks[step.node.rack] += 1
        self._steps.append(step)

    def _go_on(self, case: Case) -> None:
        """What needs nobody's leave: nodes in repair, and those that were not known yet."""
        node = case.node
        if node.unreadable:
            why = f"what was known of it cannot be read; delete its annotation {RECORD} to begin again"
            self._do(moves.look(case, why))
        elif node.record is None:
            if node.gated:
                self._do(case.move(State.JOINING, "it is new", self._limits.join_seconds))
            elif not case.needs():
                self._do(case.move(State.READY, "it was there already", boot=node.boot, served=True))
        elif case.record.state not in (State.READY, State.SUSPECT):
            self._do(moves.at_work(case) or _restored(case))

    def _in_need(self, state: State) -> list[tuple[list[Need], Case]]:
        """Return nodes of a state with what they need, the worst first, then who waits for longest."""
        found = [(case.needs(), case) for case in self._cases if _is(case, state)]
        return sorted(
            found,
            key=lambda each: (-(each[0][0].rank if each[0] else 0), each[1].record.since, each[1].node.name),
        )

    def _storm(self) -> int:
        """Return how many nodes wait for two people, 0 when they are few or two people have spoken."""
        both = [*self._in_need(State.SUSPECT), *self._in_need(State.READY)]
        waiting = sum(any(need.action in DISRUPTS for need in found) for found, _ in both)
        released = self._world.now < self._world.released_until
        return waiting if waiting > self._limits.storm and not released else 0

    def _suspect(self, case: Case, found: Sequence[Need], storm: int) -> None:
        """Drain a suspect when it is its turn; let it prove itself when nothing is wrong with it any more."""
        record, name = case.record, case.node.name
        worst = found[0].action if found else "A3" if record.aim and not _passed_since(case) else ""
        if not worst:
            self._do(moves.test(case, State.TESTING, "what was wrong is gone"))
            return
        if case.expired:
            self._do(moves.look(case, "its turn did not come in time", found))
            return
        hinder = self._hinder(case, found, worst, storm)
        if hinder:
            self._waiting[name] = hinder
            self._do(_restored(case))
            return
        do = aim(record, worst, self._limits, self._world.now)
        step = case.close(State.DRAINING, f"drained for {do}", self._limits.drain_seconds, found)
        assert step.record is not None
        gpu = gpu_of(found) if do != LOOK else ""
        self._do(replace(step, record=replace(step.record, aim=do, gpu=gpu)))

    def _hinder(self, case: Case, found: Sequence[Need], worst: str, storm: int) -> str:
        """Return why a suspect is not drained now, empty when it may be."""
        limits, node, now = self._limits, case.node, self._world.now
        if worst == "A5":
            return "no repair puts this right, a person does: see ironspan gpu why"
        if storm:
            return f"{storm} nodes wait, more than {limits.storm}: two people release them"
        if now - case.record.since < limits.settle_seconds and not is_lost(found):
            return "it is watched for a moment first"
        if node.by_change:
            return "a change of the site has cordoned it"
        if not is_open(limits.windows, now):
            return "no maintenance window is open"
        if self._busy >= limits.most_at_once:
            return f"{self._busy} nodes are repaired already"
        if self._racks[node.rack] >= limits.most_per_rack:
            return f"rack {node.rack or '(none)'} has {self._racks[node.rack]} nodes in repair"
        return ""

    def _ready(self, case: Case, found: Sequence[Need]) -> None:
        """Take a node out of service that is not well, or that is not the boot that was tested."""
        node, record = case.node, case.record
        if node.unreadable:
            return
        why = str(found[0]) if found else ""
        if not found and node.record:
            if node.gated:
                self._do(case.move(State.JOINING, "it has the taint of new nodes", self._limits.join_seconds))
                return
            # A node that never passed one may have an agent that runs none: it stays as it was.
            if not record.tested or not record.boot or not node.boot or node.boot == record.boot:
                return
            if node.preflight and node.preflight.passed:
                self._do(moves.ready(case, "it was started again, and its preflight passed"))
                return
            if not node.ready:
                return
            why = "it was started again and has to pass its preflight"
        if not why:
            return
        if self._out >= self._most_out:
            self._waiting[node.name] = (
                f"{self._out} of {self._most_out} nodes are out of service already: {why}"
            )
            return
        case = replace(case, record=replace(record, served=True))
        if found:
            step = case.close(State.SUSPECT, why, self._limits.suspect_seconds, found)
        else:
            step = moves.test(case, State.TESTING, why)
        before = len(self._steps)
        self._do(step)
        self._out += len(self._steps) - before

    def _tests(self) -> None:
        """Write down tests of idle nodes that ended, and ask for the next ones."""
        stepped = {step.node.name for step in self._steps}
        for case in self._cases:
            if _is(case, State.READY) and case.record.asked and case.node.name not in stepped:
                self._do(_tested_idle(case))
        for case in self.due_for_a_test():
            idle = case.node.pods is not None and not any(pod.uses_gpu for pod in case.node.pods)
            if self._tested >= self._limits.most_tested:
                return
            if idle and case.node.name not in stepped and case.node.name not in self._waiting:
                made, action = moves.ask(case, "preflight", self._limits.test_seconds)
                there = case.node.preflight
                record = replace(
                    case.record,
                    asked=made,
                    expires=self._world.now + self._limits.test_seconds,
                    tests=there.started if there else 0,
                )
                self._do(Step(case.node, record, action, "it is idle, and its last preflight is old"))
                self._tested += 1


def _is(case: Case, state: State) -> bool:
    return case.record.state is state and not case.node.unreadable


def _is_out(case: Case) -> bool:
    """Tell whether the controller keeps a node out of service that was at work."""
    if case.node.unreadable:
        return True
    return case.node.record is not None and case.record.state is not State.READY and case.record.served


def _passed_since(case: Case) -> bool:
    """Tell whether a node passed a preflight after the one that it was tested with."""
    verdict = case.node.preflight
    return verdict is not None and verdict.passed is True and verdict.started != case.record.tests


def _restored(case: Case) -> Step | None:
    """Put a taint back that somebody removed while the node is in repair."""
    tested = case.record.state in (State.JOINING, State.TESTING, State.RETEST)
    held = case.record.state not in GATE_STATES
    if (held and not case.node.held) or (tested and not case.node.gated):
        return Step(case.node, case.record, why="somebody removed its taint")
    return None


def _tested(record: Record) -> float:
    """Return when a node was last tested, or last asked in vain."""
    return max(record.tested, record.history[-1][0] if record.history else 0)


def _tested_idle(case: Case) -> Step | None:
    if _passed_since(case):
        record = replace(case.record, asked="", expires=0, tested=case.now, boot=case.node.boot)
        return Step(case.node, record, why="its preflight passed again")
    if case.expired:
        why = "it was asked for a preflight and gave no verdict"
        history = (*case.record.history, (case.now, str(State.READY), why))
        return Step(case.node, replace(case.record, asked="", expires=0, history=history), why=why)
    return None
