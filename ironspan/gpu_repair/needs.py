# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a node needs, by the policy: what it says of itself names the events and never their class."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ironspan.gpu_repair.limits import Limits
from ironspan.gpu_repair.model import (
    LOOK,
    REBOOT,
    RESET,
    Event,
    Node,
    Record,
    Rule,
)

FAILED_PREFLIGHT = Event("preflight failed")
LOST = frozenset({"nvml gpu_lost", "nvml gpu_missing", "xid 79"})
"""The GPU is gone: what runs on it has nothing to wait for."""
_RECOVERY = "nvml recovery_"
_RANK = {"A5": 1, "A2": 2, "A3": 3, "A4": 4}
_OWN = {FAILED_PREFLIGHT.key: Rule("A3")}
Policy = Mapping[str, Rule]


class Need(t.NamedTuple):
    """An event that takes something to be done.

    Args:
        rank: how urgent; 0 for nothing.
        action: its class.
        event: what it is.
    """

    rank: int
    action: str
    event: Event

    def __str__(self) -> str:
        gpu = f", {self.event.gpu}" if self.event.gpu else ""
        detail = f": {self.event.detail}" if self.event.detail else ""
        return f"{self.action} {self.event.key}{gpu}{detail}"


def needs(node: Node, policy: Policy, limits: Limits, now: float, *, states: bool = True) -> list[Need]:
    """Return what a node needs, the worst first.

    NVML's recovery action decides about a GPU whose driver has it, in the place of its XIDs. A state that
    NVML tells is so as long as it is told; what only happened counts once for each time.

    Args:
        node: as it was read.
        policy: the rule of each event; what nobody knows is never acted on.
        limits: how long a repair is remembered.
        now: seconds since the epoch.
        states: also what NVML tells of now; without it only what happened since the repair.
    """
    record = node.record
    met = record.met if record else {}
    ruled = {event.gpu for event in node.events if event.key.startswith(_RECOVERY)}
    repaired = {
        name
        for each in (record.tries if record else ())
        if now - each.at <= limits.window_seconds
        for name in each.events
    }
    found = []
    for event in node.events:
        is_state = event.key.startswith("nvml ")
        if not is_state and (event.gpu in ruled or met.get(event.name) == event.seen):
            continue
        if is_state and not states:
            continue
        rule = policy.get(event.key)
        if rule is None:
            continue
        action = rule.again if rule.again and event.name in repaired else rule.action
        if action in _RANK:
            found.append(Need(_RANK[action], action, event))
    if states and node.preflight and node.preflight.passed is False:
        detail = "; ".join((*node.preflight.failed, *node.preflight.missing)[:4])
        found.append(Need(_RANK["A3"], "A3", Event(FAILED_PREFLIGHT.key, detail=detail)))
    return sorted(found, key=lambda need: (-need.rank, need.event.name))


def aim(record: Record, worst: str, limits: Limits, now: float) -> str:
    """Return what is done about a class: ``reset``, ``reboot`` or ``triage``, by what was tried lately."""
    lately = [each for each in record.tries if now - each.at <= limits.window_seconds]
    resets = sum(each.do == RESET for each in lately)
    # A power cycle is a reboot that did not come about.
    reboots = sum(each.do == REBOOT for each in lately)
    if worst == "A4":
        return LOOK
    # A reset after a reboot that did not help would help less.
    if worst == "A2" and resets < limits.resets and not reboots:
        return RESET
    return REBOOT if reboots < limits.reboots else LOOK


def gpu_of(found: Sequence[Need]) -> str:
    """Return the one GPU that all is about, empty when there are several or it is not said."""
    gpus = {need.event.gpu for need in found if need.action == "A2"}
    return gpus.pop() if len(gpus) == 1 else ""


def is_lost(found: Sequence[Need]) -> bool:
    """Tell whether a GPU is gone."""
    return any(need.event.key in LOST for need in found)


def met(node: Node) -> dict[str, str]:
    """Return what a repair has dealt with: all that the node tells of now."""
    return {event.name: event.seen for event in node.events}
