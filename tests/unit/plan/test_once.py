# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan that forces drains works once, whatever controller applies it, and a run that was killed goes on."""

from __future__ import annotations

import contextlib
import json
import time
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.once import NAME, Use
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

from tests.support.fake_nodes import FakeCluster, serving

REMOVED = ("drain", "reset", "delete-node")
REPLACED = ("delete-pods", "delete-node", "join")
TURNED = ("drain", "to-cilium", "uncordon")
DIGEST = "ab" * 32


def steps(actions: t.Sequence[str], *nodes: str) -> list[Step]:
    return [Step(action, node, f"{action} {node}") for node in nodes for action in actions]


def head(planned: t.Sequence[Step], digest: str = DIGEST) -> dict[str, t.Any]:
    return {
        "digest": digest,
        "expires": int(time.time()) + 3600,
        "steps": [step.as_dict() for step in planned],
    }


class World:
    """A cluster with two workers, and a plan about them."""

    def __init__(self, api: Api, cluster: FakeCluster, actions: t.Sequence[str]) -> None:
        self.api, self.cluster = api, cluster
        self.planned = steps(actions, "w1", "w2")
        for name in ("w1", "w2"):
            cluster.add_node(name)

    def begins(self, left: t.Sequence[Step]) -> None:
        """Let a run begin, on any controller: it knows the cluster and the plan only."""
        use = Use(self.api, head(self.planned))
        use.insist_on_the_same_nodes()
        use.insist_that_something_is_left(left)

    def drains(self, name: str) -> None:
        cordon.cordon(self.api, name)
        Use(self.api, head(self.planned)).note([name])

    def comes_again(self, name: str) -> None:
        self.cluster.add_node(name)["metadata"]["uid"] = f"another-{name}"

    def is_used_up(self, left: t.Sequence[Step], words: str) -> None:
        with pytest.raises(OperationError, match=f"the plan is used up: .*{words}") as caught:
            self.begins(left)
        assert "make a new plan" in str(caught.value)


@contextlib.contextmanager
def world(actions: t.Sequence[str]) -> Iterator[World]:
    cluster = FakeCluster()
    with serving(cluster) as api:
        yield World(api, cluster, actions)


def test_a_removal_goes_on_wherever_it_was_killed_and_is_then_used_up() -> None:
    with world(REMOVED) as made:
        made.begins(made.planned)
        made.drains("w1")
        made.begins(made.planned)
        del made.cluster.nodes["w1"]
        left = [*steps(["reset"], "w1"), *steps(REMOVED, "w2")]
        made.begins(left)
        made.drains("w2")
        made.begins(left)
        del made.cluster.nodes["w2"]
        made.is_used_up(steps(["reset"], "w1", "w2"), "it has drained w1, w2 and was carried out")
        # Weeks later, within the plan's life, one of them is a worker again.
        made.comes_again("w2")
        made.is_used_up([*steps(["reset"], "w1"), *steps(REMOVED, "w2")], "w2, and another Node has the name")


def test_a_replacement_goes_on_while_the_new_machine_joins_and_is_then_used_up() -> None:
    with world(REPLACED) as made:
        made.begins(made.planned)
        for name in ("w1", "w2"):
            made.drains(name)
            replacements.note(made.api, {name: str(made.cluster.nodes[name]["metadata"]["uid"])})
            del made.cluster.nodes[name]
        made.begins(steps(["join"], "w1", "w2"))
        made.comes_again("w1")
        made.begins(steps(["join"], "w1", "w2"))
        made.comes_again("w2")
        made.begins(steps(["join"], "w1", "w2"))
        replacements.forget(made.api, ["w1", "w2"])
        made.is_used_up(made.planned, "w1, w2, and another Node has the name")


def test_nodes_that_stay_are_drained_once() -> None:
    """There and back between pod networks, and the first plan again: it would drain them once more."""
    with world(TURNED) as made:
        made.begins(made.planned)
        made.drains("w1")
        made.begins(made.planned)
        cordon.uncordon(made.api, "w1")
        made.begins(steps(TURNED, "w2"))
        made.is_used_up(made.planned, "it has drained w1, and pods may have come there since")
        made.drains("w2")
        cordon.uncordon(made.api, "w2")
        made.is_used_up([], "and was carried out")
        # Somebody else's maintenance is no leave either.
        made.cluster.nodes["w1"]["metadata"]["annotations"][cordon.ANNOTATION] = "2026-11-26T01:02:03Z"
        made.cluster.nodes["w1"]["spec"]["unschedulable"] = True
        made.is_used_up(steps(TURNED, "w1"), "it has drained w1")


def test_a_node_that_somebody_else_keeps_cordoned_goes_on_too() -> None:
    with world(REMOVED) as made:
        made.cluster.nodes["w1"]["spec"]["unschedulable"] = True
        made.drains("w1")
        made.begins(made.planned)
        made.cluster.nodes["w1"]["spec"]["unschedulable"] = None
        made.is_used_up(made.planned, "it has drained w1")


def test_another_plan_is_another_matter() -> None:
    with world(REMOVED) as made:
        made.drains("w1")
        made.drains("w2")
        cordon.uncordon(made.api, "w1")
        other = Use(made.api, head(made.planned, "cd" * 32))
        other.insist_on_the_same_nodes()
        other.insist_that_something_is_left(made.planned)


def test_what_has_expired_is_forgotten_and_nothing_else() -> None:
    with world(REMOVED) as made:
        made.drains("w1")
        data = made.cluster.config_maps["kube-system", NAME]["data"]
        now = time.time()
        data["old"] = json.dumps({"expires": int(now - 86_401), "nodes": {"w9": "x y"}})
        data["late"] = json.dumps({"expires": int(now - 3600), "nodes": {"w9": "x y"}})
        data["foreign"] = "something"
        made.drains("w2")
        data = made.cluster.config_maps["kube-system", NAME]["data"]
        assert data.keys() == {DIGEST, "late"}
        assert json.loads(data[DIGEST])["nodes"].keys() == {"w1", "w2"}


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"nodes": []}', '{"nodes": {"w1": ""}, "expires": 1}', '{"nodes": {"w1": "a"}}']
)
def test_an_entry_that_somebody_changed_is_no_leave(text: str) -> None:
    with world(REMOVED) as made:
        made.drains("w1")
        made.cluster.config_maps["kube-system", NAME]["data"][DIGEST] = text
        with pytest.raises(OperationError, match="whether the plan was used cannot be told"):
            made.begins(made.planned)


def test_a_run_that_cannot_note_it_fails_and_may_be_repeated() -> None:
    with world(REMOVED) as made:
        made.cluster.fault = lambda method, path: method == "PATCH" and NAME in path
        with pytest.raises(Exception, match="cannot be reached"):
            made.drains("w1")
        made.cluster.fault = lambda method, path: None
        made.begins(made.planned)
        made.drains("w1")
