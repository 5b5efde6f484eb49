# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who is asked to test each other, what is waited for, and what is written down, by nodes that are none."""

from __future__ import annotations

import json
import time
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.action import gpu_pairs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle, pairs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.pairs import Outcome, Pair, Settled
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

from .test_idle import node, pod


class Host:
    """A host of the inventory."""

    address = "10.0.0.1"
    variables: t.ClassVar[dict[str, t.Any]] = {
        "gpu_policy_pair_tests": ["A10"],
        "nvidia_health_pairs_port": 2393,
    }


class Cluster:
    """Nodes whose agents answer when they are looked at."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: node(name) for name in names}
        self.pods: list[t.Any] = []
        self.bad: set[str] = set()
        self.silent: set[str] = set()
        self.conflicts = 0

    def get(self, path: str) -> t.Any:
        if path.startswith("/api/v1/pods"):
            return {
                "items": [each for each in self.pods if each["spec"]["nodeName"] == path.rpartition("%3D")[2]]
            }
        found = self.nodes[path.rpartition("/")[2]]
        asked = json.loads(found["metadata"]["annotations"].get(idle.ACTION, "{}"))
        if asked and found["metadata"]["name"] not in self.silent:
            well = not self.bad & {found["metadata"]["name"], asked["pair"]["with"]}
            row = {
                "test": "A10",
                "passed": well,
                "measured": 23.0 if well else 4.0,
                "wanted": 21.2,
                "unit": "Gbit/s",
            }
            entry = {"id": asked["id"], "passed": well, "why": "", "results": [row]}
            found["metadata"]["annotations"][pairs.PAIRS] = json.dumps([entry])
        return found

    def merge(self, path: str, body: t.Any) -> None:
        if "resourceVersion" in body["metadata"] and self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "Conflict", "it has changed", f"PATCH {path}")
        annotations = self.nodes[path.rpartition("/")[2]]["metadata"]["annotations"]
        for name, text in body["metadata"]["annotations"].items():
            if text is None:
                annotations.pop(name, None)
            else:
                annotations[name] = text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting takes no time here."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])


def run(cluster: Cluster, *asked: Pair, most: int = 4) -> tuple[dict[Pair, Outcome], list[str]]:
    said: list[str] = []
    hosts = dict.fromkeys(cluster.nodes, Host())
    return gpu_pairs._Runner(cluster, hosts, said.append, most).run(asked), said


AB, CD = Pair("a", "b"), Pair("c", "d")


@pytest.mark.usefixtures("clock")
def test_both_are_asked_for_the_same_and_what_both_say_counts() -> None:
    cluster = Cluster("a", "b", "c", "d")
    cluster.bad, cluster.conflicts = {"c"}, 2
    found, said = run(cluster, AB, CD, most=1)
    assert found[AB].well is True
    assert (found[CD].well, "4 of 21.2 Gbit/s" in found[CD].why) == (False, True)
    told = [json.loads(cluster.nodes[name]["metadata"]["annotations"][idle.ACTION]) for name in "ab"]
    assert told[0]["id"] == told[1]["id"]
    assert [each["pair"]["listens"] for each in told] == [True, False]
    assert said == [
        "a and b: test each other", f"a and b: well: {found[AB].why}",
        "c and d: test each other", f"c and d: failed: {found[CD].why}",
    ]  # fmt: skip


@pytest.mark.usefixtures("clock")
def test_who_got_work_meanwhile_is_left_alone_and_who_is_silent_is_waited_for() -> None:
    cluster = Cluster("a", "b", "c", "d")
    cluster.pods, cluster.silent = [pod("b")], {"d"}
    found, _ = run(cluster, AB, CD)
    assert found[AB] == Outcome(None, "b: a pod uses its GPUs")
    assert idle.ACTION not in cluster.nodes["b"]["metadata"]["annotations"]
    assert (found[CD].well, found[CD].why) == (None, "no answer within 420 s")
    # The one that was asked before is still waiting for the other.
    assert run(cluster, AB)[0][AB].why == "a: it is being tested"
    cluster = Cluster("a", "b")
    cluster.conflicts = 99
    assert run(cluster, AB)[0][AB] == Outcome(None, "a: something else changes it all the time")


def test_who_is_bad_is_written_down_and_taken_back_when_it_is_well() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.nodes["c"]["metadata"]["annotations"][pairs.VERDICT] = "[]"
    outcomes = {AB: Outcome(False, "slow"), Pair("b", "c"): Outcome(True, "")}
    said: list[str] = []
    gpu_pairs._write(cluster, Settled(outcomes, {"a": "with b: slow"}, {}), 1.8e9, said.append)
    (event,) = json.loads(cluster.nodes["a"]["metadata"]["annotations"][pairs.VERDICT])
    assert (event["event"], event["detail"]) == (pairs.EVENT, "with b: slow")
    assert pairs.VERDICT not in cluster.nodes["b"]["metadata"]["annotations"]
    assert pairs.VERDICT not in cluster.nodes["c"]["metadata"]["annotations"]
    assert said == ["a: bad: with b: slow"]
