# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pods of a node are deleted behind its back only when nothing shows that its kubelet still runs."""

from __future__ import annotations

import socket
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon, dead_node, drain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import Outcome, Policy

from tests.support.fake_nodes import FakeCluster, serving

CONSENT = Policy(seconds=60, unreachable="delete", watch_seconds=0.3)


@pytest.fixture
def listener() -> Iterator[int]:
    """A port that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def lost(port: int = 1) -> FakeCluster:
    """A node that the cluster has not heard of, with three pods."""
    made = FakeCluster()
    node = made.add_node("rack-1", ready="Unknown")
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = port
    made.add_pod("a", "rack-1")
    made.add_pod("lonely", "rack-1", owner="", volumes=[{"name": "cache", "emptyDir": {}}])
    made.add_pod("agent", "rack-1", owner="DaemonSet")
    made.add_budget("front", 5)
    made.stubborn = {"a", "lonely"}
    return made


def drained(made: FakeCluster, policy: Policy) -> Outcome:
    with serving(made) as api:
        return drain.drain(api, ["rack-1"], policy)[0]


def test_without_consent_nothing_is_done() -> None:
    made = lost()
    outcome = drained(made, CONSENT._replace(unreachable="refuse"))
    assert outcome.state == "stuck"
    assert "its kubelet has not been heard of since 2026-11-21T10:00:00Z" in outcome.reasons[0]
    assert {method for method, _ in made.requests} == {"GET"}


def test_it_may_be_skipped() -> None:
    made = lost()
    assert drained(made, CONSENT._replace(unreachable="skip")).state == "unreachable"
    assert {method for method, _ in made.requests} == {"GET"}


def test_with_consent_and_proof_its_pods_are_deleted() -> None:
    made = lost()
    outcome = drained(made, CONSENT)
    assert (outcome.state, outcome.evicted) == ("drained", ["web/a", "web/lonely"])
    assert "nothing answers at 127.0.0.1:1" in outcome.reasons[0]
    assert made.names_on("rack-1") == ["agent"]
    assert cordon.is_cordoned(made.nodes["rack-1"])


def test_a_packet_that_is_lost_is_no_silence(listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, lost_ones = socket.create_connection, iter([True])

    def connected(*given: t.Any) -> socket.socket:
        if next(lost_ones, False):
            raise TimeoutError("timed out")
        return connect(*given)

    monkeypatch.setattr(socket, "create_connection", connected)
    assert dead_node.kubelet_answers(lost(listener).nodes["rack-1"])


def test_who_never_answers_is_silent(listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost_each_time(*given: t.Any) -> t.NoReturn:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", lost_each_time)
    assert not dead_node.kubelet_answers(lost(listener).nodes["rack-1"])


def test_a_pod_of_the_same_name_started_elsewhere_is_left_alone() -> None:
    made = lost()
    seen = iter([True])

    def fault(method: str, path: str) -> None:
        if method == "DELETE" and path.endswith("/a") and next(seen, False):
            made.add_pod("a", "rack-2")

    made.fault = fault
    with serving(made) as api:
        # the API says 409, which is an outcome of this node and not an error of the run
        outcome = drain.drain(api, ["rack-1"], CONSENT)[0]
    assert made.names_on("rack-2") == ["a"]
    assert outcome.state == "drained"


def test_a_kubelet_that_answers_is_not_dead(listener: int) -> None:
    made = lost(listener)
    made.stubborn = set()
    made.budgets.clear()
    said: list[str] = []
    with serving(made) as api:
        outcome = drain.drain(
            api, ["rack-1"], CONSENT._replace(force=True, empty_dir_data="delete"), said.append
        )
    assert outcome[0].state == "drained"
    assert f"its kubelet answers at 127.0.0.1:{listener}" in said[0]
    assert not [path for method, path in made.requests if method == "DELETE"]


@pytest.mark.parametrize(
    ("unreachable", "state", "left"), [("delete", "drained", ["agent"]), ("refuse", "stuck", ["a", "agent"])]
)
def test_a_node_that_dies_while_it_is_drained(
    unreachable: str, state: str, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "_LOOK_SECONDS", 0.1)
    made = lost()
    del made.pods["web", "lonely"]
    made.budgets.clear()
    condition = made.nodes["rack-1"]["status"]["conditions"][0]
    condition["status"] = "True"

    def fault(method: str, path: str) -> None:
        if path.endswith("/eviction"):
            condition["status"] = "Unknown"

    made.fault = fault
    outcome = drained(made, CONSENT._replace(unreachable=unreachable))
    assert outcome.state == state
    assert made.names_on("rack-1") == left
    if state == "stuck":
        assert "its kubelet has not been heard of" in outcome.reasons[0]


@pytest.mark.parametrize(
    ("ready", "where", "told"),
    [
        # nothing listens at the port of a host that is up
        ("True", "127.0.0.1", True),
        ("Unknown", "127.0.0.1", False),
        ("False", "127.0.0.1", False),
        # no address, or nobody answers there: that says nothing
        ("True", "", False),
        ("True", "listener", False),
    ],
)
def test_a_node_without_a_kubelet_is_called_ready_no_longer(
    ready: str, where: str, told: bool, listener: int
) -> None:
    made = FakeCluster()
    node = made.add_node("rack-1", ready=ready)
    if where == "listener":
        node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = listener
    elif not where:
        node["status"]["addresses"] = []
    with serving(made) as api:
        assert dead_node.declare_stopped(api, ["rack-1", "rack-2"]) == (["rack-1"] if told else [])
    assert cordon.ready_condition(made.nodes["rack-1"])["status"] == ("Unknown" if told else ready)


def test_a_lease_that_moves_is_a_sign_of_life() -> None:
    made = lost()
    made.budgets.clear()
    made.stubborn = set()
    renewals = iter(range(100))

    def fault(method: str, path: str) -> None:
        if "/leases/" in path:
            made.leases["rack-1"] = f"2026-11-21T10:00:{next(renewals):02}Z"

    made.fault = fault
    outcome = drained(made, CONSENT)
    assert outcome.state == "stuck"
    assert "web/lonely has no controller" in outcome.reasons[0]
    assert not [path for method, path in made.requests if method == "DELETE"]
