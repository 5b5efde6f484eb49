# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied within budgets and a deadline, and what is stuck says what to do; over real HTTP."""

from __future__ import annotations

import threading
import time
import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon, drain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import Outcome, Policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import MANAGED_BY

from tests.support.fake_nodes import FakeCluster, Refusal, serving
from tests.support.faults import insist

PATIENT = Policy(seconds=60)
QUICK = Policy(seconds=0.8)
"""For drains that get stuck: what is to be drained has the time that a busy machine needs."""
DISK = [{"name": "cache", "emptyDir": {}}]
MEMORY = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again sooner than on a real cluster."""
    monkeypatch.setattr(drain, "_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(drain, "_POLL_SECONDS", (0.1, 0.2))


def cluster(*nodes: str) -> FakeCluster:
    made = FakeCluster()
    for node in nodes or ("rack-1",):
        made.add_node(node)
    return made


def drained(made: FakeCluster, policy: Policy = PATIENT, said: list[str] | None = None) -> Outcome:
    with serving(made) as api:
        return drain.drain(api, ["rack-1"], policy, (said if said is not None else []).append)[0]


def test_pods_go_and_the_node_is_closed() -> None:
    made = cluster()
    for name in ("a", "b", "c"):
        made.add_pod(name, "rack-1")
    made.add_pod("elsewhere", "rack-2")
    outcome = drained(made)
    assert outcome == Outcome("rack-1", "drained", ["web/a", "web/b", "web/c"], [], cordoned=True)
    assert made.names_on("rack-1") == []
    assert made.names_on("rack-2") == ["elsewhere"]
    assert made.nodes["rack-1"]["spec"]["unschedulable"] is True
    assert cordon.cordoned_here(made.nodes["rack-1"])


@pytest.mark.parametrize(
    ("owner", "more", "stays"),
    [
        ("DaemonSet", {}, True),
        ("Node", {"annotations": {"kubernetes.io/config.mirror": "x"}}, True),
        ("ReplicaSet", {}, False),
        ("StatefulSet", {"volumes": MEMORY}, False),
        ("Job", {"phase": "Succeeded", "volumes": DISK}, False),
        ("", {"phase": "Failed"}, False),
        # verify's own, while their namespace is being deleted
        ("", {"labels": MANAGED_BY, "volumes": DISK}, False),
    ],
)
def test_which_pods_go(owner: str, more: dict[str, t.Any], stays: bool) -> None:
    made = cluster()
    made.add_pod("one", "rack-1", owner=owner, **more)
    assert drained(made).state == "drained"
    assert made.names_on("rack-1") == (["one"] if stays else [])


@pytest.mark.parametrize(
    ("owner", "more", "policy", "reason"),
    [
        ("", {}, PATIENT, "pod web/one has no controller that would start it again"),
        ("", {}, PATIENT._replace(force=True), ""),
        ("ReplicaSet", {"volumes": DISK}, PATIENT, "of ReplicaSet front keeps data in emptyDir cache"),
        ("ReplicaSet", {"volumes": DISK}, PATIENT._replace(empty_dir_data="delete"), ""),
    ],
)
def test_what_would_be_lost_needs_somebody_to_say_so(
    owner: str, more: dict[str, t.Any], policy: Policy, reason: str
) -> None:
    made = cluster()
    made.add_pod("one", "rack-1", owner=owner, **more)
    made.add_pod("two", "rack-1")
    outcome = drained(made, policy)
    assert outcome.state == ("stuck" if reason else "drained")
    if reason:
        assert reason in outcome.reasons[0]
        # nothing was begun
        assert made.names_on("rack-1") == ["one", "two"]
        assert not cordon.is_cordoned(made.nodes["rack-1"])
        assert not [path for method, path in made.requests if method != "GET"]


def test_a_budget_is_kept_until_there_is_room() -> None:
    made = cluster("rack-1", "rack-2")
    for name in ("a", "b"):
        made.add_pod(name, "rack-1")
    made.add_budget("front", 1)
    made.controller = lambda pod: threading.Timer(
        0.3, made.add_pod, (f"{pod['metadata']['name']}2", "rack-2")
    ).start()
    running: list[int] = []
    made.fault = lambda method, path: running.append(
        sum(1 for pod in made.pods.values() if not pod["metadata"].get("deletionTimestamp"))
    )
    outcome = drained(made)
    assert (outcome.state, outcome.evicted) == ("drained", ["web/a", "web/b"])
    assert min(running) >= 1


def ends_with(over: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass for the drain when something has happened."""
    clock = types.SimpleNamespace(
        monotonic=lambda: time.monotonic() + (3600 if over.is_set() else 0), sleep=time.sleep
    )
    monkeypatch.setattr(drain, "time", clock)


def test_a_budget_that_never_gives_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    made.add_pod("free", "rack-1", labels={"app": "other"})
    made.add_budget("front", 1)
    said: list[str] = []
    over = threading.Event()

    def look(method: str, path: str) -> None:
        # The deadline comes when what may go is seen to be gone.
        if path == "/api/v1/pods" and made.names_on("rack-1") == ["a"]:
            over.set()

    made.fault = look
    ends_with(over, monkeypatch)
    outcome = drained(made, PATIENT, said)
    assert outcome.state == "stuck"
    assert outcome.reasons == [
        "pod web/a: PodDisruptionBudget web/front allows no more (1 healthy, 1 needed; "
        "kubectl -n web describe pdb front)"
    ]
    insist("drain-stuck", outcome.reasons[0])
    # what may go went, the other is still served, the node stays closed for the next attempt
    assert made.names_on("rack-1") == ["a"]
    assert outcome.cordoned
    assert any("the API refuses for now to evict web/a" in text for text in said)
    del made.budgets["web", "front"]
    made.fault = lambda method, path: None
    over.clear()
    again = drained(made)
    assert (again.state, again.cordoned) == ("drained", False)


def test_two_budgets_are_one_too_many() -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    made.add_budget("one", 0)
    made.add_budget("two", 0)
    assert "more than one PodDisruptionBudget (one, two)" in drained(made, QUICK).reasons[0]


def test_a_pod_that_does_not_end_is_named() -> None:
    made = cluster()
    made.add_pod("a", "rack-1", finalizers=["example.com/hold"])
    made.stubborn = {"a"}
    outcome = drained(made, QUICK)
    assert outcome.state == "stuck"
    assert outcome.reasons[0].startswith("pod web/a was told to end and has not; it has 30 s for that")
    assert "example.com/hold" in outcome.reasons[0]
    assert len([path for _method, path in made.requests if path.endswith("/eviction")]) == 1


def test_a_pod_that_came_in_at_the_last_moment_goes_too() -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    late = iter([True])

    def fault(method: str, path: str) -> None:
        if path.endswith("/eviction") and next(late, False):
            made.add_pod("late", "rack-1")

    made.fault = fault
    assert drained(made).evicted == ["web/a", "web/late"]


def test_one_stuck_node_does_not_keep_others() -> None:
    made = cluster("rack-1", "rack-2")
    made.add_pod("lonely", "rack-1", owner="")
    made.add_pod("a", "rack-2")
    with serving(made) as api:
        outcomes = drain.drain(api, ["rack-1", "rack-2", "rack-9"], PATIENT)
    assert [outcome.state for outcome in outcomes] == ["stuck", "drained", "absent"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_api_is_asked_again(status: int) -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    busy = iter([True])

    def fault(method: str, path: str) -> None:
        if path.endswith("/eviction") and next(busy, False):
            raise Refusal(status, "Busy", "try later")

    made.fault = fault
    assert drained(made).state == "drained"


def test_a_link_that_is_cut_for_a_while_is_waited_for() -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    broken = {"requests": 0}

    def fault(method: str, path: str) -> bool:
        # everything after the node was closed, for a while
        if cordon.is_cordoned(made.nodes["rack-1"]) and broken["requests"] < 6:
            broken["requests"] += 1
            return True
        return False

    made.fault = fault
    said: list[str] = []
    with serving(made, patience=0.3) as api:
        outcome = drain.drain(api, ["rack-1"], PATIENT, said.append)[0]
    assert outcome.state == "drained"
    assert "rack-1: waiting for the API" in said


def test_a_link_that_stays_cut_is_the_reason() -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    made.fault = lambda method, path: cordon.is_cordoned(made.nodes["rack-1"])
    with serving(made, patience=0.2) as api:
        outcome = drain.drain(api, ["rack-1"], QUICK)[0]
    assert outcome.state == "stuck"
    insist("drain-cut", outcome.reasons[0])
    made.fault = lambda method, path: None
    assert drained(made).state == "drained"


def test_a_refusal_of_credentials_is_final() -> None:
    made = cluster()
    made.add_pod("a", "rack-1")

    def fault(method: str, path: str) -> None:
        if path.endswith("/eviction"):
            raise Refusal(401, "Unauthorized", "who are you")

    made.fault = fault
    outcome = drained(made)
    assert (outcome.state, "who are you" in outcome.reasons[0]) == ("stuck", True)


def test_a_preview_changes_nothing() -> None:
    made = cluster()
    made.add_pod("a", "rack-1")
    made.add_pod("agent", "rack-1", owner="DaemonSet")
    made.add_pod("data", "rack-1", volumes=DISK)
    with serving(made) as api:
        found = drain.preview(api, "rack-1", QUICK)
        assert drain.preview(api, "rack-7", QUICK).state == "absent"
    assert (found.state, found.evicted) == ("stuck", ["web/a", "web/data"])
    assert {method for method, _ in made.requests} == {"GET"}


def test_only_what_was_closed_here_is_opened() -> None:
    made = cluster("ours", "theirs", "open")
    made.nodes["theirs"]["spec"]["unschedulable"] = True
    with serving(made) as api:
        assert [cordon.cordon(api, name) for name in ("ours", "theirs", "open")] == [True, False, True]
        assert cordon.cordon(api, "ours") is False
        assert cordon.uncordon(api, "open") is True
        assert cordon.out_of_service(api) == {"ours", "theirs"}
        assert [cordon.uncordon(api, name) for name in ("ours", "theirs", "open")] == [True, False, False]
    assert "unschedulable" not in made.nodes["ours"]["spec"]
    assert made.nodes["theirs"]["spec"]["unschedulable"] is True
    assert not cordon.cordoned_here(made.nodes["ours"])


@pytest.mark.parametrize(("conflicts", "works"), [(4, True), (5, False)])
def test_a_node_that_is_written_meanwhile_is_read_again(conflicts: int, works: bool) -> None:
    made = cluster()
    left = iter(range(conflicts))

    def fault(method: str, path: str) -> None:
        if method == "PATCH" and next(left, None) is not None:
            raise Refusal(409, "Conflict", "the object has been modified")

    made.fault = fault
    with serving(made) as api:
        if works:
            assert cordon.cordon(api, "rack-1")
        else:
            with pytest.raises(ApiError):
                cordon.cordon(api, "rack-1")
