# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A simulation says what it measured, and cannot be taken for one of another kind."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support import kwok
from tests.support.simulation import __main__ as command
from tests.support.simulation.metrics import Row
from tests.support.simulation.outcome import Outcome, Phase, Plan
from tests.support.simulation.report import LEAST, text

QUIET = Phase(
    name="quiet",
    seconds=20,
    cpu={"api": 3.14159},
    counters={
        "apiserver_watch_events_total": 4000,
        "apiserver_watch_events_sizes_sum": 2**21,
        "apiserver_flowcontrol_rejected_requests_total": 3,
        "apiserver_terminated_watchers_total": 1,
    },
    requests=[
        Row("PUT", "leases", "resource", 2000, 0.0123),
        Row("PATCH", "nodes/status", "resource", LEAST, 0.5),
        Row("LIST", "pods", "cluster", LEAST - 1, 0.5),
    ],
)


def outcome(plan: Plan, flaps: list[str]) -> Outcome:
    """Return what a simulation of 1,000 nodes could have measured."""
    return Outcome(
        plan=plan,
        at_once=50,
        flags={"max-requests-inflight": "1500"} if plan.with_profile else {},
        phases=[QUIET],
        flaps=flaps,
        node_changes=8.25,
        watches={"nodes": 105, "pods": 4},
        objects={"nodes": 1000},
        etcd_bytes={"etcd-1": 3 * 2**20},
        memory={"api": (512.25, 600.5)},
    )


def test_text() -> None:
    lines = text(outcome(Plan(fsync=False), ["sim-1", "sim-1"])).splitlines()
    assert lines[0].startswith(
        "1000 nodes, with the profile of 1000 nodes; API server: max-requests-inflight 1500;"
    )
    assert "etcd does not wait for the disk" in lines[0]
    assert "nodes that were Ready and then were not: 2" in lines
    assert "watches: 109, of nodes 105, of pods 4" in lines
    assert "etcd: etcd-1 3.0 MiB" in lines
    assert "  messages to watches: 4000, 200 a second, 2.0 MiB; ended for reading too slowly: 1" in lines
    assert "  requests refused: 3" in lines
    assert "  heartbeats: 100.0 leases a second, 5.00 statuses a second" in lines
    # One of less than a hundred is no percentile.
    assert [line.split()[0] for line in lines if "p99" in line] == ["PUT", "PATCH"]


def test_what_was_not_asked_for_is_said() -> None:
    first = text(outcome(Plan(with_profile=False, planned=5000, events_apart=True), [])).splitlines()[0]
    assert first.startswith(
        "1000 nodes, without the profile of 5000 nodes; API server: defaults; etcd waits for"
    )
    assert first.endswith("events in an etcd of their own")


def test_json_has_everything() -> None:
    found = json.loads(outcome(Plan(), []).as_json())
    assert found["phases"][0]["cpu"] == {"api": 3.14}
    assert found["phases"][0]["requests"][0] == {
        "verb": "PUT",
        "resource": "leases",
        "scope": "resource",
        "count": 2000,
        "p99": 0.0123,
    }


@pytest.mark.parametrize(("flaps", "code"), [([], 0), (["sim-1"], 1)])
def test_exit_code(flaps: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Plan] = []

    def simulate(plan: Plan, *_: object) -> Outcome:
        asked.append(plan)
        return outcome(plan, flaps)

    monkeypatch.setattr(kwok, "find", lambda: kwok.__file__)
    monkeypatch.setattr(command, "simulate", simulate)
    monkeypatch.setattr(
        sys, "argv", ["simulation", "--nodes", "5000", "--without-profile", "--without-fsync"]
    )
    assert command.main() == code
    assert asked == [Plan(nodes=5000, with_profile=False, fsync=False)]


def test_without_kwok_the_command_that_builds_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kwok, "find", lambda: None)
    monkeypatch.setattr(sys, "argv", ["simulation"])
    assert command.main() == 2
    assert kwok.BUILD in capsys.readouterr().err
