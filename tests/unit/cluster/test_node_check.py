# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A few nodes are waited for without asking for all of the cluster."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.expectations import ExpectedNode
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.node_check import check_named
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.nodes import Declared, declare

from tests.support.fake_nodes import FakeCluster, serving

W1 = ExpectedNode("w1", "127.0.0.1", "1.36.4", control_plane=False, gvisor=False)


def cluster(ready: str = "True", version: str = "v1.36.4") -> FakeCluster:
    made = FakeCluster()
    for name in ("w1", "w2"):
        made.add_node(name, ready)["status"]["nodeInfo"] = {"kubeletVersion": version}
    return made


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (cluster(), ""),
        (cluster(version="v1.35.0"), "w1 runs kubelet v1.35.0, wanted v1.36.4"),
        (cluster(ready="False"), "w1 is not Ready: its kubelet has not reported"),
        (FakeCluster(), "w1 is not in the cluster"),
    ],
)
def test_what_is_wrong_with_a_node_is_said(made: FakeCluster, problem: str) -> None:
    with serving(made) as api:
        assert check_named(api, [W1], 0.2) == ([problem] if problem else [])
    assert {path for _method, path in made.requests} == {"/api/v1/nodes/w1"}


def test_a_node_that_becomes_ready_is_waited_for() -> None:
    made = cluster(ready="False")

    said: list[str] = []

    def told(text: str) -> None:
        said.append(text)
        made.nodes["w1"]["status"]["conditions"][0]["status"] = "True"

    with serving(made) as api:
        assert check_named(api, [W1], 10, told) == []
    assert said == ["waiting for w1 to be Ready"]


def test_a_node_counts_once_its_kubelet_has_reported_from_the_boot() -> None:
    made = cluster()
    about = made.nodes["w1"]["status"]["nodeInfo"]
    about["bootID"] = "before"
    with serving(made) as api:
        (problem,) = check_named(api, [W1], 0.2, boots={"w1": "after", "w2": "other"})
        assert problem == "w1 was restarted, and its kubelet has not reported since"

        def told(text: str) -> None:
            about["bootID"] = "after"

        assert check_named(api, [W1], 10, told, {"w1": "after"}) == []


def test_labels_of_a_few_nodes_do_not_list_all() -> None:
    made = cluster()
    with serving(made) as api:
        changes = declare(
            api, {"w1": Declared({"row": "7"}), "w9": Declared({})}, dry_run=True, one_by_one=True
        )
    assert [change.node for change in changes] == ["w1"]
    assert {path for _method, path in made.requests} == {"/api/v1/nodes/w1", "/api/v1/nodes/w9"}
