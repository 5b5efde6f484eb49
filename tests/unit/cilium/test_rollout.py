# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waiting for Cilium's agents and operator: who is named, how long, and what is not waited for."""

from __future__ import annotations

import types
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.action import cilium_rollout
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import rollout
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st

Object = dict[str, t.Any]
OLD, NEW = "cilium-1", "cilium-2"
UP: Object = {"conditions": [{"type": "Ready", "status": "True"}]}
CRASHED: Object = {
    "containerStatuses": [{"state": {"running": {}}}, {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
}
PULLING: Object = {"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}
BEGINS: Object = {"containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}


class Cluster:
    """Nodes with an agent each; ``step`` is called whenever somebody waits."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: node(name) for name in names}
        self.pods = {name: pod(name) for name in names}
        self.operator = deployment(2, updated=2, available=2)
        self.generation = self.observed = 2
        self.sets = True
        self.missing = 0
        self.waited = 0.0
        self.asked: list[str] = []
        self.said: list[str] = []
        self.step: Callable[[Cluster], None] = lambda cluster: None

    def find(self, path: str) -> Object | None:
        """Return one of the workloads."""
        self.asked.append(path)
        if path == rollout.OPERATOR:
            return self.operator or None
        up = [one for one in self.pods.values() if one["status"] == UP]
        new = [one for one in self.pods.values() if one["metadata"]["labels"][rollout.HASH] == NEW]
        if not self.sets:
            return None
        return {
            "metadata": {"uid": "set", "generation": self.generation},
            "spec": {},
            "status": {
                "observedGeneration": self.observed,
                "desiredNumberScheduled": len(self.nodes),
                "updatedNumberScheduled": len(new),
                "numberAvailable": len(up) - self.missing,
            },
        }

    def get(self, path: str, **query: str) -> Object:
        """Return a list."""
        self.asked.append(path)
        if path == rollout.NODES:
            return {"items": list(self.nodes.values())}
        assert query == {"labelSelector": "k8s-app=cilium"}
        if path == rollout.PODS:
            return {"items": list(self.pods.values())}
        assert path == rollout.REVISIONS
        foreign = {**revision(9, "other-9"), "metadata": {"labels": {rollout.HASH: "other-9"}}}
        return {"items": [revision(10, NEW), foreign, revision(9, OLD)]}

    def pause(self, seconds: float) -> None:
        """Let time go by."""
        self.waited += seconds
        self.step(self)

    def wait(self, patience: float = 20) -> rollout.Look:
        """Wait for this cluster."""
        return rollout.wait(t.cast("Api", self), patience, self.said.append, self.pause)


def node(name: str, ready: str = "True") -> Object:
    """Return a node."""
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(name: str, version: str = NEW, status: Object = UP, **more: t.Any) -> Object:
    """Return the agent of a node."""
    return {
        "metadata": {"labels": {rollout.HASH: version}, **more},
        "spec": {"nodeName": name},
        "status": status,
    }


def revision(number: int, version: str) -> Object:
    """Return a ControllerRevision of the agents' DaemonSet."""
    return {
        "metadata": {"labels": {rollout.HASH: version}, "ownerReferences": [{"uid": "set"}]},
        "revision": number,
    }


def deployment(replicas: int, updated: int, available: int, there: int = 0, observed: int = 1) -> Object:
    """Return the operator."""
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": observed,
            "updatedReplicas": updated,
            "availableReplicas": available,
            "replicas": there or replicas,
        },
    }


def test_what_is_done_costs_two_requests() -> None:
    cluster = Cluster("a", "b")
    assert cluster.wait().done
    assert cluster.asked == [rollout.AGENT, rollout.OPERATOR]
    assert not cluster.said and not cluster.waited


def test_a_rollout_may_take_longer_than_its_patience_as_long_as_it_goes_on() -> None:
    names = [f"n{number}" for number in range(9)]
    cluster = Cluster(*names)
    cluster.pods = {name: pod(name, OLD) for name in names}

    def renew(now: Cluster) -> None:
        if now.waited % 6 == 0:
            name = next(name for name, one in now.pods.items() if one == pod(name, OLD))
            now.pods[name] = pod(name)

    cluster.step = renew
    assert cluster.wait(patience=8).done
    assert cluster.waited == 9 * 6
    assert cluster.said[0].startswith("waiting: agents of 9 of 9 nodes are not up: n0 (its agent is still")
    assert cluster.said[0].endswith("n7 (its agent is still the former one) and 1 more")
    assert len(cluster.said) == 9


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (None, "no agent yet"),
        (pod("b", OLD), "its agent is still the former one"),
        (pod("b", status=CRASHED), "its agent is in CrashLoopBackOff"),
        (pod("b", status=PULLING), "its agent is in ErrImagePull"),
        (pod("b", status=BEGINS), "its agent starts"),
        (pod("b", status={}), "its agent starts"),
        (pod("b", deletionTimestamp="2026-11-22T10:00:00Z"), "its agent is being replaced"),
    ],
)
def test_nodes_whose_agents_do_not_come_up_are_named(agent: Object | None, why: str) -> None:
    cluster = Cluster("a", "b", "c")
    del cluster.pods["b"]
    if agent:
        cluster.pods["b"] = agent
    # Pods that are being deleted are not counted by the set's controller.
    cluster.missing = 1
    with pytest.raises(ClusterError) as caught:
        cluster.wait()
    assert f"agents of 1 of 3 nodes are not up: b ({why})." in str(caught.value)
    assert "for 20 s nothing more came up" in str(caught.value)
    assert cluster.waited == 20
    assert caught.value.remedy.startswith("See kubectl -n kube-system get pods")


def test_a_change_that_nobody_has_taken_up_is_not_done() -> None:
    cluster = Cluster("a")
    cluster.observed = 1
    cluster.step = lambda now: setattr(now, "observed", 2)
    assert cluster.wait().done
    assert cluster.said == ["waiting: agents of 1 of 1 nodes are not up: a (the change was not taken up yet)"]


def test_an_api_without_the_objects_is_told() -> None:
    cluster = Cluster("a")
    cluster.sets, cluster.operator = False, {}
    with pytest.raises(ClusterError, match=r"a \(the cluster has no DaemonSet cilium\); the cluster"):
        cluster.wait()


def test_nodes_that_do_not_report_are_not_waited_for() -> None:
    cluster = Cluster("a", "b")
    cluster.nodes["b"] = node("b", "Unknown")
    cluster.pods["b"] = pod("b", OLD, CRASHED)
    found = cluster.wait()
    assert found.done and found.silent == ("b",)
    # One that has only just come has an agent to come.
    cluster.nodes["b"]["status"]["conditions"] = []
    with pytest.raises(ClusterError, match=r"1 of 2 nodes are not up: b \("):
        cluster.wait()


@pytest.mark.parametrize(
    ("nodes", "operator", "problem"),
    [
        (1, deployment(2, updated=2, available=1), ""),
        (2, deployment(2, updated=2, available=1), "1 of 2 operators are up, 2 as declared"),
        (1, deployment(2, updated=1, available=1), "1 of 1 operators are up, 1 as declared"),
        (1, deployment(2, updated=2, available=2, there=3), "2 of 1 operators are up, 2 as declared"),
        (2, deployment(2, updated=2, available=2, observed=0), "2 of 2 operators are up, 2 as declared"),
        (1, deployment(1, updated=1, available=0), "0 of 1 operators are up, 1 as declared"),
    ],
)
def test_the_operator(nodes: int, operator: Object, problem: str) -> None:
    cluster = Cluster(*"ab"[:nodes])
    cluster.operator = operator
    found = rollout.look(t.cast("Api", cluster))
    assert (found.operator, found.done) == (problem, not problem)
    if problem:
        with pytest.raises(ClusterError, match=problem):
            cluster.wait()


def test_a_closed_node_takes_no_operator() -> None:
    cluster = Cluster("a", "b")
    cluster.operator = deployment(2, updated=2, available=1)
    cluster.nodes["b"]["spec"]["unschedulable"] = True
    assert rollout.look(t.cast("Api", cluster)).done


@given(st.lists(st.sampled_from(["new", "old", "crashed", "none", "silent"]), min_size=1, max_size=6))
def test_it_is_done_exactly_when_every_node_that_reports_has_what_is_declared(kinds: list[str]) -> None:
    names = [f"n{number}" for number in range(len(kinds))]
    cluster = Cluster(*names)
    for name, kind in zip(names, kinds, strict=True):
        if kind in ("old", "silent"):
            cluster.pods[name] = pod(name, OLD)
        if kind == "crashed":
            cluster.pods[name] = pod(name, status=CRASHED)
        if kind == "none":
            del cluster.pods[name]
        if kind == "silent":
            cluster.nodes[name] = node(name, "Unknown")
    found = rollout.look(t.cast("Api", cluster))
    wrong = {name for name, kind in zip(names, kinds, strict=True) if kind in ("old", "crashed", "none")}
    assert set(found.waiting) == wrong
    assert found.done == (not wrong)


@pytest.mark.parametrize(
    ("cni", "migration_cidr", "check", "asks"),
    [
        ("flannel", "", False, False),
        ("flannel", "10.250.0.0/16", False, True),
        ("cilium", "", False, True),
        ("cilium", "", True, False),
    ],
)
def test_only_a_site_with_cilium_is_waited_for(
    cni: str, migration_cidr: str, check: bool, asks: bool
) -> None:
    cluster = Cluster("a", "b")
    cluster.nodes["b"], cluster.pods["b"] = node("b", "Unknown"), pod("b", OLD)
    action: t.Any = cilium_rollout.ActionModule.__new__(cilium_rollout.ActionModule)
    action._task = types.SimpleNamespace(check_mode=check)
    action.say = cluster.said.append
    session: t.Any = types.SimpleNamespace(
        site=types.SimpleNamespace(cni=cni, migration_cidr=migration_cidr), api=lambda: cluster
    )
    result = action.visit(session, {"patience": 600})
    assert not result["changed"]
    assert bool(cluster.asked) == asks
    assert result["silent"] == (["b"] if asks else [])
    assert cluster.said == (["not waited for, their kubelets do not report: b"] if asks else [])
