# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A node is turned over to Cilium and back, killed anywhere in between, and proven."""

from __future__ import annotations

import contextlib
import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import host_pod, migration, proof, turn
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.smoke_run import PodResult
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

from tests.support.fake_networks import DirectApi, Killed, TwoNetworks

CILIUM = turn.Way("cilium", ipaddress.IPv4Network("10.250.0.0/16"))
FLANNEL = turn.Way("flannel", ipaddress.IPv4Network("10.244.0.0/16"))
GENEROUS = 30.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "_POLL_SECONDS", 0.01)


@pytest.fixture
def cluster() -> TwoNetworks:
    """Return a cluster with two nodes of flannel."""
    return TwoNetworks("w1", "w2")


@pytest.fixture
def api(cluster: TwoNetworks) -> Api:
    """Return a client of it."""
    return DirectApi(cluster)


def go(api: Api, way: turn.Way, name: str = "w1", seconds: float = GENEROUS) -> None:
    turn.prepare(api, way, seconds, lambda text: None)
    turn.turn(api, name, way, seconds, lambda text: None)


def state(cluster: TwoNetworks, node: str) -> tuple[bool, bool, bool, list[str]]:
    """Return whether a node has Cilium's file and services, kube-proxy's rules; addresses of its pods."""
    return (
        node in cluster.files,
        node in cluster.services,
        node in cluster.rules,
        cluster.addresses(node),
    )


MOVED = (True, True, False, ["10.250.1.7"])
BEFORE = (False, False, True, ["10.244.1.7"])


def test_a_node_is_turned_over_and_back_and_no_other_one(cluster: TwoNetworks, api: Api) -> None:
    agent = cluster.pods["kube-system", "cilium-w2"]["metadata"]["uid"]
    go(api, CILIUM)
    assert (state(cluster, "w1"), state(cluster, "w2")) == (MOVED, BEFORE)
    assert cluster.tasks == [("w1", "/usr/local/bin/kube-proxy --cleanup")]
    assert ("kube-system", "kube-proxy-w1") not in cluster.pods
    go(api, FLANNEL)
    assert (state(cluster, "w1"), state(cluster, "w2")) == (BEFORE, BEFORE)
    assert cluster.tasks[1:] == [("w1", f"rm -f /host/{migration.HOST_FILE}")]
    assert migration.LABEL not in cluster.nodes["w1"]["metadata"]["labels"]
    assert cluster.pods["kube-system", "cilium-w2"]["metadata"]["uid"] == agent


@pytest.mark.parametrize("way", [CILIUM, FLANNEL], ids=["there", "back"])
def test_a_run_killed_anywhere_is_finished_by_the_next(way: turn.Way) -> None:
    for most in range(20):
        cluster = TwoNetworks("w1", "w2")
        if way is FLANNEL:
            go(DirectApi(cluster), CILIUM)
        api = DirectApi(cluster)
        api.writes_left = most
        with contextlib.suppress(Killed):
            go(api, way)
        whole = api.writes_left >= 0
        go(DirectApi(cluster), way)
        assert state(cluster, "w1") == (MOVED if way is CILIUM else BEFORE), most
        assert ("kube-system", "ironspan-cni-migrate-w1") not in cluster.pods
        if whole:
            assert most > 5
            return
    raise AssertionError("never ran to its end")


def test_an_agent_that_does_not_start_is_named_and_the_way_back_is_open(
    cluster: TwoNetworks, api: Api
) -> None:
    cluster.broken = {"w1"}
    with pytest.raises(ClusterError, match="its agent of Cilium is not ready yet"):
        go(api, CILIUM, seconds=0.1)
    assert cluster.addresses("w1") == ["10.244.1.7"], "no pod was touched before the network is there"
    cluster.broken = set()
    cluster.sets[turn.AGENT]["status"]["numberAvailable"] = 0
    go(api, FLANNEL)
    assert state(cluster, "w1") == BEFORE


def test_what_fails_on_the_host_is_told(cluster: TwoNetworks, api: Api) -> None:
    cluster.failing_tasks = True
    with pytest.raises(ClusterError, match="Could not take away kube-proxy's rules: its pod failed"):
        go(api, CILIUM)


@pytest.mark.parametrize(
    ("missing", "says"), [(turn.AGENT, "no DaemonSet cilium"), (None, "cilium does not run everywhere")]
)
def test_nothing_begins_without_agents(
    cluster: TwoNetworks, api: Api, missing: str | None, says: str
) -> None:
    if missing:
        del cluster.sets[missing]
    else:
        cluster.sets[turn.AGENT]["status"]["numberAvailable"] = 0
    with pytest.raises(ClusterError, match=says):
        turn.prepare(api, CILIUM, 0.05, lambda text: None)
    assert not cluster.node_configs


def test_pods_that_have_no_address_of_the_network() -> None:
    def pod(**more: t.Any) -> dict[str, t.Any]:
        status = {"phase": "Running", "podIP": more.pop("address", "10.244.0.9")}
        return {"metadata": more.pop("metadata", {}), "spec": more, "status": status}

    strays = [pod(), pod(address=None)]
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    others = [pod(hostNetwork=True), pod(address="10.250.3.3"), pod(metadata=mirror)]
    ended = {**pod(), "status": {"phase": "Succeeded", "podIP": "10.244.0.9"}}
    assert turn.stray_pods([*strays, *others, ended], CILIUM.network) == strays


def test_a_pod_on_the_host_needs_no_pod_network() -> None:
    made = host_pod.body("w1", host_pod.Task("x", "image:1", ["a", "b"], "/etc"))
    assert made["spec"]["hostNetwork"] and made["spec"]["nodeName"] == "w1"
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert not made["spec"]["automountServiceAccountToken"]


class Losing:
    """An API whose pods somebody else deletes at once."""

    def apply(self, path: str, item: object) -> None:
        """Take it."""

    def delete(self, path: str) -> bool:
        """There is nothing."""
        return False

    def find(self, path: str) -> None:
        """There is nothing."""


def test_a_pod_that_somebody_deleted_is_no_success() -> None:
    task = host_pod.Task("look", "image:1", ["a"])
    with pytest.raises(ClusterError, match="Could not look: somebody deleted its pod"):
        host_pod.run(t.cast(t.Any, Losing()), "w1", task, 30, lambda text: None)


def result(node: str, address: str, problem: str = "") -> PodResult:
    return PodResult(f"runc-{node}", node, "runc", "workers", address, {}, problem)


def test_a_witness_of_each_network_is_asked(cluster: TwoNetworks) -> None:
    cluster.add_node("w3")
    cluster.nodes["w3"]["metadata"]["labels"] = {migration.LABEL: migration.MOVED}
    assert proof.witnesses(cluster.nodes, {"w1"}) == ["w2", "w3"]
    cluster.nodes["w2"]["spec"]["unschedulable"] = True
    assert proof.witnesses(cluster.nodes, {"w1"}) == ["w3"]


def test_a_pod_in_the_other_network_is_no_proof() -> None:
    networks = {"w1": CILIUM.network, "w2": FLANNEL.network}
    assert not list(proof.judged([result("w1", "10.250.0.3"), result("w2", "10.244.0.3")], networks))
    (wrong,) = proof.judged([result("w1", "10.244.0.3")], networks)
    assert wrong == "runc pod on w1: its address 10.244.0.3 is not in 10.250.0.0/16"
    (wrong,) = proof.judged([result("w1", "", "DNS does not answer")], networks)
    assert wrong == "runc pod on w1: DNS does not answer"
