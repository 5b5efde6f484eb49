# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Steps of adding, removing and replacing workers: worked out from inventory and cluster, nothing changed."""

from __future__ import annotations

import contextlib
import socket
import types
import typing as t
from collections.abc import Iterator, Mapping

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import (
    node_add,
    node_remove,
    node_replace,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import DrainPolicy, Host, Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import (
    OperationError,
    Step,
    without_consent,
)

from tests.support.fake_nodes import FakeCluster, serving


def host(name: str, group: str = "nodes", rack: str = "a", address: str = "127.0.0.1") -> Host:
    return Host(
        name, address, address, (group, "on_prem"), rack, {}, (), "on_prem", "", "1.36.4", ("base",), {}
    )


def site(*hosts: Host, most: int | str = 1) -> Site:
    return Site(
        "test", "api:6443", "127.0.0.1", "10.244.0.0/16", "10.96.0.0/16", 24, "cluster.local", "1.36.4", 1400,
        "/store", "", "", {item.name: item for item in hosts}, drain=DrainPolicy(max_unavailable=most),
    )  # fmt: skip


WORKERS = [host("w1"), host("w2"), host("w3", rack="b"), host("cp", "control_plane"), host("db", "etcd")]


@contextlib.contextmanager
def context_of(
    cluster: FakeCluster, arguments: Mapping[str, t.Any], *hosts: Host, most: int | str = 1
) -> Iterator[Context]:
    with serving(cluster) as api:
        session = types.SimpleNamespace(site=site(*(hosts or WORKERS), most=most), api=lambda: api)
        yield Context(t.cast(t.Any, session), arguments)


def whole() -> FakeCluster:
    """Return a cluster with all workers of the inventory, and a pod on each."""
    made = FakeCluster()
    for name in ("w1", "w2", "w3", "cp"):
        made.add_node(name)
        made.add_pod(f"pod-{name}", name)
    return made


def actions(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.action, step.target) for step in steps]


@pytest.mark.parametrize(
    ("operation", "arguments", "words"),
    [
        (node_remove, {}, "no host is named"),
        (node_replace, {}, "no host is named"),
        (node_remove, {"ironspan_hosts": "w1,w9"}, "w9, which the inventory of test does not have"),
        (node_remove, {"ironspan_hosts": "cp"}, "cp: control planes and etcd members"),
        (node_add, {"ironspan_hosts": ["db"]}, "db: control planes and etcd members"),
        (node_replace, {"ironspan_hosts": "w1,db"}, "db: control planes and etcd members"),
    ],
)
def test_what_is_refused(operation: t.Any, arguments: dict[str, t.Any], words: str) -> None:
    with context_of(whole(), arguments) as context, pytest.raises(OperationError, match=words):
        operation.steps(context)


def test_a_worker_is_emptied_reset_and_forgotten() -> None:
    cluster = whole()
    with context_of(cluster, {"ironspan_hosts": "w1"}) as context:
        steps = node_remove.steps(context)
    assert actions(steps) == [("drain", "w1"), ("reset", "w1"), ("delete-node", "w1")]
    assert "evict 1 pod within" in steps[0].what
    assert steps[0].arithmetic == "rack a: at most 1 of 2 out of service"
    assert actions(without_consent(steps, allowed=False)) == [("reset", "w1"), ("delete-node", "w1")]
    assert {method for method, _path in cluster.requests} == {"GET"}


def test_removal_goes_in_waves_with_those_that_are_down_first() -> None:
    cluster = whole()
    cluster.nodes["w2"]["status"]["conditions"][0]["status"] = "Unknown"
    with context_of(cluster, {"ironspan_hosts": "w1,w2,w3"}) as context:
        steps = node_remove.steps(context)
    assert list(dict.fromkeys(step.target for step in steps)) == ["w2", "w3", "w1"]
    dead = steps[0]
    assert (dead.action, dead.target, dead.destructive) == ("delete-pods", "w2", True)
    assert "behind a cut link" in dead.disruption


def test_a_host_that_is_no_node_any_more_is_only_reset() -> None:
    cluster = whole()
    del cluster.nodes["w1"]
    with context_of(cluster, {"ironspan_hosts": "w1"}) as context:
        assert actions(node_remove.steps(context)) == [("reset", "w1")]


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [({}, True), ({"ironspan_force_drain": "true"}, False), ({"ironspan_force_drain": True}, False)],
)
def test_nothing_begins_when_something_would_be_lost(arguments: dict[str, t.Any], refused: bool) -> None:
    cluster = whole()
    cluster.add_pod("lonely", "w1", owner="")
    cluster.add_pod("other", "w3", owner="")
    with context_of(cluster, {"ironspan_hosts": "w1,w3", **arguments}) as context:
        if not refused:
            assert node_remove.steps(context)
            return
        with pytest.raises(OperationError) as caught:
            node_remove.steps(context)
    assert "w1: pod web/lonely has no controller" in str(caught.value)
    assert "w3: pod web/other has no controller" in str(caught.value)


def test_named_workers_join_and_others_are_found() -> None:
    cluster = whole()
    with context_of(cluster, {"ironspan_hosts": "w2,w1"}) as context:
        assert actions(node_add.steps(context)) == [("join", "w2"), ("join", "w1")]
    with context_of(cluster, {}) as context:
        assert node_add.steps(context) == []
    del cluster.nodes["w1"]
    cluster.nodes["w3"]["status"]["conditions"][0]["status"] = "False"
    with context_of(cluster, {}) as context:
        assert actions(node_add.steps(context)) == [("join", "w1"), ("join", "w3")]


def test_a_node_without_its_labels_is_not_whole() -> None:
    cluster = whole()
    labelled = Host(
        "w1", "127.0.0.1", "", ("nodes",), "a", {"row": "7"}, (), "on_prem", "", "1.36.4", ("base",), {}
    )
    with context_of(cluster, {}, labelled) as context:
        assert actions(node_add.steps(context)) == [("join", "w1")]


def test_a_dead_machine_is_replaced() -> None:
    cluster = whole()
    cluster.nodes["w1"]["status"]["conditions"][0]["status"] = "Unknown"
    with context_of(cluster, {"ironspan_hosts": "w1"}) as context:
        steps = node_replace.steps(context)
    assert actions(steps) == [("delete-pods", "w1"), ("delete-node", "w1"), ("join", "w1")]


def test_the_machine_that_is_to_be_replaced_must_not_run() -> None:
    cluster = whole()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        cluster.nodes["w1"]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = port
        with (
            context_of(cluster, {"ironspan_hosts": "w1"}) as context,
            pytest.raises(OperationError, match=r"its kubelet runs: w1 at 127\.0\.0\.1"),
        ):
            node_replace.steps(context)
        # with another address in the inventory it is drained in order while it still runs
        moved = [host("w1", address="127.0.0.2"), *WORKERS[1:]]
        with context_of(cluster, {"ironspan_hosts": "w1"}, *moved) as context:
            assert actions(node_replace.steps(context)) == [
                ("drain", "w1"),
                ("delete-node", "w1"),
                ("join", "w1"),
            ]


def test_a_replacement_that_was_cut_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = whole()
    cluster.nodes["w1"]["metadata"]["uid"] = "the-new-one"
    cluster.nodes["w2"]["metadata"]["uid"] = "the-old-one"
    del cluster.nodes["w3"]
    notes = {"w1": "gone", "w2": "the-old-one", "w3": "gone-too"}
    monkeypatch.setattr(replacements, "noted", lambda api: notes)
    with context_of(cluster, {"ironspan_hosts": "w1,w2,w3"}, most="100%") as context:
        steps = node_replace.steps(context)
    assert {name: [step.action for step in steps if step.target == name] for name in ("w1", "w2", "w3")} == {
        "w1": ["join"],
        "w2": ["drain", "delete-node", "join"],
        "w3": ["join"],
    }


class Notes:
    """An API that keeps one object."""

    def __init__(self) -> None:
        self.kept: dict[str, t.Any] | None = None

    def find(self, path: str) -> dict[str, t.Any] | None:
        return self.kept

    def apply(self, path: str, body: dict[str, t.Any]) -> None:
        self.kept = body

    def delete(self, path: str) -> None:
        self.kept = None


def test_notes_of_replacements_come_and_go() -> None:
    api = t.cast(t.Any, Notes())
    replacements.note(api, {})
    assert api.kept is None
    replacements.note(api, {"w1": "a"})
    replacements.note(api, {"w2": "b"})
    assert replacements.noted(api) == {"w1": "a", "w2": "b"}
    old, new = ({"metadata": {"name": "w1", "uid": uid}} for uid in ("a", "c"))
    stranger = {"metadata": {"name": "w9", "uid": "z"}}
    notes = replacements.noted(api)
    assert [replacements.is_new(notes, node) for node in (old, new, stranger)] == [False, True, False]
    replacements.forget(api, ["w1", "w7"])
    assert replacements.noted(api) == {"w2": "b"}
    replacements.forget(api, ["w2"])
    assert api.kept is None
