# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Steps of moving a cluster between pod networks: worked out from inventory and cluster, nothing changed."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import migration
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import cni_migrate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import (
    OperationError,
    Step,
    unplanned,
)

from tests.support.fake_networks import ADDRESSES, DirectApi, TwoNetworks
from tests.unit.operations.test_workers import WORKERS, actions, site

FORTH: dict[str, t.Any] = {}
BACK = {"ironspan_pod_network": "flannel"}


def whole() -> TwoNetworks:
    """Return a cluster with all nodes of the inventory, and a pod that can go elsewhere on each."""
    made = TwoNetworks("w1", "w2", "w3", "cp")
    for name in ("w1", "w2", "w3", "cp"):
        made.add_pod(f"pod-{name}", name)["status"]["podIP"] = ADDRESSES["flannel"]
    return made


def move(cluster: TwoNetworks, *names: str) -> None:
    """Let nodes be moved, with all their pods."""
    for name in names:
        cluster.nodes[name]["metadata"]["labels"] = {migration.LABEL: migration.MOVED}
    for pod in cluster.pods.values():
        if pod["spec"]["nodeName"] in names and "podIP" in pod["status"]:
            pod["status"]["podIP"] = ADDRESSES["cilium"]


def steps_of(cluster: TwoNetworks, arguments: dict[str, t.Any], cidr: str = "10.250.0.0/16") -> list[Step]:
    made = site(*WORKERS)
    made.migration_cidr = cidr
    session = types.SimpleNamespace(site=made, api=lambda: DirectApi(cluster))
    return cni_migrate.steps(Context(t.cast(t.Any, session), arguments, "cni_migrate"))


def turned(steps: list[Step]) -> list[str]:
    return [step.target for step in steps if step.action.startswith("to-")]


@pytest.mark.parametrize(
    ("arguments", "cidr", "says", "remedy"),
    [
        (FORTH, "", "site_cni_migration_cidr is not set", "set it, run site.yml"),
        (
            {"ironspan_pod_network": "calico"},
            "10.250.0.0/16",
            "ironspan_pod_network: 'calico' is none of its values",
            "cilium, flannel, cilium-only",
        ),
    ],
)
def test_what_is_refused(arguments: dict[str, t.Any], cidr: str, says: str, remedy: str) -> None:
    cluster = whole()
    with pytest.raises(OperationError) as caught:
        steps_of(cluster, arguments, cidr)
    assert says in str(caught.value) and remedy in str(caught.value)
    assert not cluster.requests


def test_a_node_that_is_down_is_not_turned() -> None:
    cluster = whole()
    cluster.nodes["w2"]["status"]["conditions"][0]["status"] = "Unknown"
    with pytest.raises(OperationError, match="not Ready: w2"):
        steps_of(cluster, FORTH)
    assert turned(steps_of(cluster, {"ironspan_hosts": "w1"})) == ["w1"]


def test_workers_go_in_waves_and_control_planes_last() -> None:
    steps = steps_of(whole(), FORTH)
    assert actions(steps[:3]) == [("drain", "w1"), ("to-cilium", "w1"), ("uncordon", "w1")]
    assert turned(steps) == ["w1", "w3", "w2", "cp"]
    waves = {step.target: step.arithmetic for step in steps if step.action == "to-cilium"}
    assert waves == {"w1": "wave 1 of 3", "w3": "wave 1 of 3", "w2": "wave 2 of 3", "cp": "wave 3 of 3"}
    assert "10.250.0.0/16" in steps[1].what and "without kube-proxy" in steps[1].disruption
    assert not any(step.destructive for step in steps)


def test_groups_can_be_named() -> None:
    assert turned(steps_of(whole(), {"ironspan_hosts": "control_plane"})) == ["cp"]


def test_what_is_done_is_not_done_again_and_what_was_begun_is() -> None:
    cluster = whole()
    plan = [step.as_dict() for step in steps_of(cluster, FORTH)]
    move(cluster, "w1", "w3", "w2")
    # w3 was not opened; w2 has a pod that flannel still carries.
    cluster.nodes["w3"]["metadata"]["annotations"] = {"ironspan/cordoned": "2026-11-22T10:00:00Z"}
    cluster.pods["web", "logs-w2"]["status"]["podIP"] = ADDRESSES["flannel"]
    left = steps_of(cluster, FORTH)
    assert sorted(turned(left)) == ["cp", "w2", "w3"]
    assert turned(steps_of(cluster, BACK)) and "w1" in turned(steps_of(cluster, BACK))
    move(cluster, "w1", "w2", "w3", "cp")
    cluster.nodes["w3"]["metadata"]["annotations"] = {}
    assert steps_of(cluster, FORTH) == []
    assert unplanned(steps_of(cluster, {"ironspan_hosts": "w1"}), plan) == []


def test_the_way_back_is_the_same_one() -> None:
    cluster = whole()
    move(cluster, "w1")
    steps = steps_of(cluster, BACK)
    assert actions(steps) == [("drain", "w1"), ("to-flannel", "w1"), ("uncordon", "w1")]
    assert "10.244.0.0/16" in steps[1].what and steps[1].disruption.endswith("carried by kube-proxy")


def test_nothing_begins_when_something_would_be_lost() -> None:
    cluster = whole()
    cluster.add_pod("lonely", "w2", owner="")["status"]["podIP"] = ADDRESSES["flannel"]
    with pytest.raises(OperationError, match="w2: pod web/lonely has no controller"):
        steps_of(cluster, FORTH)
    assert steps_of(cluster, {"ironspan_force_drain": True})
