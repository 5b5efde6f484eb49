# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that are to be wiped: how nodes on them leave first, and what is refused."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import (
    node_remove,
    server_redeploy,
    server_retire,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, without_consent

from tests.support.fake_nodes import FakeCluster
from tests.unit.operations.test_workers import context_of, host, whole

WITHOUT_W2 = [host("w1"), host("w3", rack="b"), host("cp", "control_plane"), host("db", "etcd")]


def asked(*servers: str, **more: t.Any) -> dict[str, t.Any]:
    return {"ironspan_servers": ",".join(servers), **more}


@pytest.mark.parametrize("operation", [server_redeploy, server_retire])
def test_nodes_leave_as_node_remove_lets_them(operation: t.Any) -> None:
    with context_of(whole(), asked("w1", "spare", "w3")) as context:
        steps = operation.steps(context)
    with context_of(whole(), {"ironspan_hosts": "w1,w3"}) as context:
        assert [step for step in steps if step.action != "node-add"] == node_remove.steps(context)
    assert [step.action for step in steps if step.target == "w1"][:3] == ["drain", "reset", "delete-node"]
    assert without_consent(steps, False)


def test_what_is_left_is_said() -> None:
    with context_of(whole(), asked("w1", "spare")) as context:
        steps = server_redeploy.steps(context)
    assert (steps[-1].action, steps[-1].target) == ("node-add", "w1")


def test_servers_that_are_no_nodes_have_no_steps() -> None:
    with context_of(FakeCluster(), asked("w1", "spare")) as context:
        assert server_redeploy.steps(context) == []


def test_without_a_cluster_none_is_asked() -> None:
    with context_of(whole(), asked("w1", ironspan_no_cluster=True)) as context:
        assert server_redeploy.steps(context) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (asked(), "no server is named"),
        (asked("cp"), "cp: control planes and etcd members do not come and go as workers do"),
        (asked("db"), "db: control planes and etcd members do not come and go as workers do"),
        (asked("db", ironspan_no_cluster=True), "db: control planes and etcd members do not come and go"),
        (asked("w1", "w2"), "w2: nodes of the cluster, and no hosts of the inventory of test"),
    ],
)
def test_what_is_refused(arguments: dict[str, t.Any], reason: str) -> None:
    with (
        context_of(whole(), arguments, *WITHOUT_W2) as context,
        pytest.raises(OperationError, match=reason),
    ):
        server_redeploy.steps(context)
