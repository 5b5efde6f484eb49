# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How much of a fleet may be repaired, how often, how long, and when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """When repairs may begin: days of the week (0 is Monday) and minutes of the day, UTC.

    One whose end is not after its start goes on into the next day.
    """

    days: frozenset[int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the controller may do. Seconds, and numbers of nodes.

    Args:
        most_out: nodes that it may keep out of service, those in triage included.
        most_out_percent: the same of all GPU nodes; one node is always allowed.
        most_at_once: nodes that are repaired at the same time.
        most_per_rack: the same of one rack.
        storm: with more nodes than that waiting for a repair none begins until two people release them.
        resets, reboots: of one node within ``window_seconds``.
        settle_seconds: how long a node is a suspect before it is drained.
        suspect_seconds: how long it may wait for its turn before a person looks at it.
        drain_seconds: how long its pods have.
        lost_seconds: how long pods have that use GPUs of a node that lost one.
        reset_seconds, reboot_seconds, power_seconds: how long each may take.
        test_seconds: how long a preflight may take.
        join_seconds: how long a new node may take to come up.
        silent_seconds: how long a node's agent may write nothing while the node is up.
        retest_seconds: how old the preflight of an idle node gets.
        most_tested: idle nodes that are tested at the same time.
        power: a power cycle is asked for when a reboot did not help to a new boot.
        windows: when repairs may begin; always where there are none.
    """

    most_out: int = 20
    most_out_percent: int = 20
    most_at_once: int = 4
    most_per_rack: int = 1
    storm: int = 8
    resets: int = 2
    reboots: int = 2
    window_seconds: float = 7 * 86400
    settle_seconds: float = 60
    suspect_seconds: float = 3 * 86400
    drain_seconds: float = 7 * 86400
    lost_seconds: float = 600
    reset_seconds: float = 900
    reboot_seconds: float = 1800
    power_seconds: float = 86400
    test_seconds: float = 7200
    join_seconds: float = 86400
    silent_seconds: float = 900
    retest_seconds: float = 7 * 86400
    most_tested: int = 4
    power: bool = True
    windows: tuple[Window, ...] = ()

    def out(self, nodes: int) -> int:
        """Return how many of so many nodes may be out of service."""
        return min(self.most_out, max(1, nodes * self.most_out_percent // 100))
