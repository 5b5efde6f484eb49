# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which nodes are drained for firmware, which are opened, and what is refused; Ironic's answers are given."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import server_firmware
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Found, Step, Thing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

from tests.unit.operations.test_workers import WORKERS, actions, context_of, host, whole

UPDATE = (Step("service", "bring its firmware to what is declared"),)
DRAINED, ASKED, LATER = "2026-11-26T10:00:00Z", "2026-11-26T10:05:00Z", "2026-11-26T11:00:00Z"


def server(name: str, *, due: bool = True, asked_at: str = "", fault: str = "") -> Thing:
    found = Found({"asked_at": asked_at}, fault=fault)
    return Thing("bare_metal_firmware", name, {}, found, UPDATE if due and not fault else ())


def steps(
    monkeypatch: pytest.MonkeyPatch, *servers: Thing, cluster: t.Any = None, **arguments: t.Any
) -> list[tuple[str, str]]:
    monkeypatch.setattr(server_firmware, "things_of", lambda context: servers)
    hosts = [*WORKERS, host("spare")]
    with context_of(cluster or whole(), arguments, *hosts) as context:
        return actions(server_firmware.steps(context))


def test_only_what_is_due_is_drained_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = steps(
        monkeypatch, server("w1"), server("w2", due=False), server("w3", fault="no file"), server("new")
    )
    assert found == [("drain", "w1"), ("update-firmware", "w1"), ("uncordon", "w1")]


def test_a_host_that_is_no_node_is_updated_without_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps(monkeypatch, server("spare")) == [("update-firmware", "spare")]


@pytest.mark.parametrize(
    ("closed_at", "asked_at", "opened"),
    [(DRAINED, ASKED, True), (LATER, ASKED, False), (DRAINED, "", False), ("", ASKED, False)],
)
def test_a_node_that_a_killed_run_left_closed_is_opened_and_one_closed_since_is_not(
    monkeypatch: pytest.MonkeyPatch, closed_at: str, asked_at: str, opened: bool
) -> None:
    cluster = whole()
    if closed_at:
        cluster.nodes["w1"]["metadata"]["annotations"][cordon.ANNOTATION] = closed_at
        cluster.nodes["w1"]["spec"]["unschedulable"] = True
    found = steps(monkeypatch, server("w1", due=False, asked_at=asked_at), cluster=cluster)
    assert found == ([("uncordon", "w1")] if opened else [])


def test_where_there_is_no_cluster_nothing_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps(monkeypatch, server("w1"), ironspan_no_cluster=True) == []


@pytest.mark.parametrize("name", ["cp", "db"])
def test_control_planes_are_refused_where_they_are_due_and_only_then(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert steps(monkeypatch, server(name, due=False)) == []
    with pytest.raises(OperationError, match=f"{name}: control planes and etcd members"):
        steps(monkeypatch, server(name))


def test_a_node_that_the_inventory_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = whole()
    cluster.add_node("stranger")
    with pytest.raises(OperationError, match="stranger: nodes of the cluster, and no hosts"):
        steps(monkeypatch, server("stranger"), cluster=cluster)
