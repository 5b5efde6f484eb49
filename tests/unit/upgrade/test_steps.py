# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Steps of an upgrade, and what forbids it."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import obstacles, upgrade
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import hosts_in_any_order
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import (
    OperationError,
    Step,
    unplanned,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import live
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import Version, parse
from hypothesis import given
from hypothesis import strategies as st

from .tables import NEW, OLD, Content, Table, cluster, context, host, node


@pytest.fixture(autouse=True)
def agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The members have agreed on 3.6."""
    monkeypatch.setattr(live, "etcd_cluster_version", lambda *_: Version(3, 6, 0))


HOSTS = [
    host("az-1", "etcd", "control_plane"),
    host("az-2", "etcd", "control_plane"),
    host("az-3", "etcd"),
    host("rack-1", "nodes", "gvisor"),
    host("rack-2", "nodes"),
]
NODES = ["az-1", "az-2", "rack-1", "rack-2"]


def old_cluster() -> Table:
    return cluster({"az-1": OLD, "az-2": OLD}, [node(name) for name in NODES])


def actions(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.action, step.target) for step in steps]


def on_node(name: str) -> list[tuple[str, str]]:
    return [("drain", name), ("upgrade-node", name), ("uncordon", name)]


def test_the_whole_way_in_its_order() -> None:
    steps = upgrade.steps(context(old_cluster(), HOSTS))
    assert actions(steps) == [
        ("etcd-snapshot", ""),
        ("upgrade-etcd", "az-1"),
        ("upgrade-etcd", "az-2"),
        ("upgrade-etcd", "az-3"),
        ("upgrade-control-plane", "az-1"),
        *on_node("az-1"),
        ("upgrade-control-plane", "az-2"),
        *on_node("az-2"),
        *on_node("rack-1"),
        *on_node("rack-2"),
        ("upgrade-kube-proxy", ""),
    ]
    texts = {(step.action, step.target): step for step in steps}
    assert "3 members, 2 needed, 3 healthy; after: 3 members, 2 needed, 2 healthy" in steps[1].arithmetic
    assert texts["upgrade-node", "rack-1"].what == (
        "kubelet 1.36.4 -> 1.37.1, containerd 2.3.4 -> 2.3.7, gVisor 20260817.0 if it has another on rack-1"
    )
    assert texts["upgrade-node", "rack-2"].arithmetic == (
        "wave 2 of 2; kubelet 1.36.4 is 1 minor behind API server 1.37.1, 3 allowed"
    )
    assert "az-1 1.37.1, az-2 1.36.4" in texts["upgrade-control-plane", "az-1"].arithmetic


def test_nothing_is_to_be_done_where_all_versions_are_as_wanted() -> None:
    done = [node(name, NEW, "2.3.7") for name in NODES]
    api = cluster({"az-1": NEW, "az-2": NEW}, done, proxy=NEW)
    assert upgrade.steps(context(api, HOSTS, etcd="3.7.3")) == []


def test_a_run_that_was_cut_short_goes_on_and_its_plan_has_what_is_left() -> None:
    planned = [step.as_dict() for step in upgrade.steps(context(old_cluster(), HOSTS))]
    half = [
        node("az-1", NEW, "2.3.7"),
        node("az-2", NEW, "2.3.7"),
        node("rack-1", NEW, "2.3.7"),
        node("rack-2"),
    ]
    half[2]["spec"]["unschedulable"] = True
    half[2]["metadata"]["annotations"] = {"ironspan/cordoned": "x"}
    api = cluster({"az-1": NEW, "az-2": NEW}, half, proxy=NEW)
    left = upgrade.steps(context(api, HOSTS, etcd="3.7.3"))
    assert actions(left) == [("etcd-snapshot", ""), ("uncordon", "rack-1"), *on_node("rack-2")]
    assert unplanned(left, planned) == []


def test_a_run_that_was_cut_short_while_it_closed_a_wave_goes_on_with_its_plan() -> None:
    """The second node of the wave was closed first: it comes first now, which is no other plan."""
    planned = [step.as_dict() for step in upgrade.steps(context(old_cluster(), HOSTS))]
    nodes = [node("az-1", NEW, "2.3.7"), node("az-2", NEW, "2.3.7"), node("rack-1"), node("rack-2")]
    nodes[3]["spec"]["unschedulable"] = True
    api = cluster({"az-1": NEW, "az-2": NEW}, nodes, proxy=NEW)
    left = upgrade.steps(context(api, HOSTS, etcd="3.7.3"))
    assert actions(left)[1:] == [*on_node("rack-2"), *on_node("rack-1")]
    assert hosts_in_any_order("upgrade") and not hosts_in_any_order("node_remove")
    assert unplanned(left, planned, hosts_in_any_order=True) == []
    # On one host the order stays, and nothing comes twice.
    assert unplanned([left[2], left[1]], planned, hosts_in_any_order=True) == [left[1]]
    assert unplanned([*left, left[1]], planned, hosts_in_any_order=True) == [left[1]]


def pod(name: str, on: str, **more: Content) -> Content:
    metadata = {"name": name, "namespace": "shop", **more}
    return {"metadata": metadata, "spec": {"nodeName": on}, "status": {"phase": "Running"}}


def test_pods_that_would_stop_it_late_are_an_obstacle_before_it_begins() -> None:
    api = old_cluster()
    owner = {"kind": "ReplicaSet", "name": "x", "controller": True}
    made: list[Content] = [pod("web", "rack-1"), pod("web", "rack-2")]
    made[0]["metadata"]["ownerReferences"] = [owner]
    api.answers["/api/v1/pods"] = {"items": made}
    with pytest.raises(OperationError, match="rack-2 cannot be emptied: pod shop/web has no controller"):
        upgrade.steps(context(api, HOSTS))
    # The node with it is finished: nothing is in the way any more.
    done = [node(name, NEW, "2.3.7") if name == "rack-2" else node(name) for name in NODES]
    later = cluster({"az-1": OLD, "az-2": OLD}, done)
    later.answers["/api/v1/pods"] = {"items": made}
    assert upgrade.steps(context(later, HOSTS))


@given(st.integers(min_value=0, max_value=3), st.integers(min_value=0, max_value=2), st.integers(0, 2))
def test_wherever_it_stops_the_steps_left_are_the_plans_last(members: int, planes: int, workers: int) -> None:
    """Stopped in any phase: those before it are whole, those after it not begun."""
    planned = [step.as_dict() for step in upgrade.steps(context(old_cluster(), HOSTS))]
    planes = planes if members == 3 else 0
    workers = workers if planes == 2 else 0
    done = {*["az-1", "az-2"][:planes], *["rack-1", "rack-2"][:workers]}
    nodes = [node(name, NEW, "2.3.7") if name in done else node(name) for name in NODES]
    api = cluster({name: NEW if name in done else OLD for name in ("az-1", "az-2")}, nodes)
    names = ["az-1", "az-2", "az-3"]
    running = [
        Member(
            name, "", healthy=True, cluster="c", member=name, leader="az-1", listed=tuple(names),
            version="3.7.3" if number < members else "3.6.14",
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    left = upgrade.steps(context(api, HOSTS, members=running))
    assert unplanned(left, planned) == []
    assert len([step for step in left if step.action == "upgrade-etcd"]) == 3 - members
    assert {step.target for step in left if step.action == "upgrade-node"} == set(NODES) - done


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"servers": {"az-1": "1.35.0", "az-2": "1.35.0"}}, "go to 1.36 first"),
        ({"worker": "1.33.0"}, "rack-1: a kubelet 1.33.0 is 4 minor versions older than 1.37.1"),
        ({"ready": "False"}, "control plane az-2 is not Ready"),
        ({"etcd": "3.6.8"}, "bring every member to 3.6.11"),
        ({"containerd": "2.4.0"}, "rack-1: containerd 2.4.0 would become the older 2.3.7"),
        ({"metrics": 'group="g",removed_release="1.37",resource="things",subresource="",version="v1beta1"'},
         "somebody asks for g/v1beta1/things, which is gone in 1.37"),
        ({"objects": True}, "there are workloads of scheduling.k8s.io/v1alpha2, which goes away"),
        ({"alarm": True}, "etcd is not healthy: az-2 reports the alarm NOSPACE"),
        ({"moved": True}, "rack-2: Cilium carries services there while the cluster is being moved"),
    ],
)  # fmt: skip
def test_what_forbids_it_is_said_before_anything_is_changed(change: Content, says: str) -> None:
    worker = node("rack-1", change.get("worker", OLD), change.get("containerd", "2.3.4"))
    nodes = [node("az-1"), node("az-2", ready=change.get("ready", "True")), worker, node("rack-2")]
    api = cluster(change.get("servers", {"az-1": OLD, "az-2": OLD}), nodes)
    if "metrics" in change:
        api.metrics = f"# HELP x\n{live.DEPRECATED_METRIC}{{{change['metrics']}}} 1\n"
    if "objects" in change:
        root = "/apis/scheduling.k8s.io/v1alpha2"
        api.answers[root] = {"resources": [{"name": "workloads", "verbs": ["list"]}]}
        api.answers[f"{root}/workloads"] = {"items": [{}]}
    made = context(api, HOSTS, etcd=change.get("etcd", "3.6.14"))
    if "moved" in change:
        made.site.migration_cidr = "10.250.0.0/16"
        nodes[3]["metadata"]["labels"] = {"ironspan.io/pod-network": "cilium"}
    if "alarm" in change:
        members = made.etcd_members()
        made.etcd_members = lambda: [members[0], members[1]._replace(alarms=("NOSPACE",)), members[2]]
    with pytest.raises(OperationError) as caught:
        upgrade.steps(made)
    assert says in str(caught.value)


def test_deprecated_apis_that_stay_are_no_obstacle() -> None:
    labels = 'group="g",removed_release="{}",resource="r",version="v1"'
    metrics = "".join(f"{live.DEPRECATED_METRIC}{{{labels.format(r)}}} 1\n" for r in ("1.38", "", "soon"))
    assert list(obstacles.deprecated(metrics, parse(NEW))) == []
    assert len(list(obstacles.deprecated(metrics, parse("1.38.0")))) == 1


def test_a_kubelet_that_stays_older_by_the_inventory_is_left_alone() -> None:
    hosts = [*HOSTS[:4], host("rack-2", "nodes", version=OLD, containerd="2.3.4")]
    steps = upgrade.steps(context(old_cluster(), hosts))
    assert "rack-2" not in {step.target for step in steps}


def test_a_node_that_is_named_is_done_though_its_versions_are_as_wanted() -> None:
    done = [node(name, NEW, "2.3.7") for name in NODES]
    api = cluster({"az-1": NEW, "az-2": NEW}, done, proxy=NEW)
    steps = upgrade.steps(context(api, HOSTS, etcd="3.7.3", named=[HOSTS[3]]))
    assert actions(steps) == [("etcd-snapshot", ""), *on_node("rack-1")]
