# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a plan says of the cluster is what is applied there; what the API says of a dry run is in the plan."""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.action import cluster_objects, node_metadata, write_plan
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.errors import (
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.nodes import Declared, NodeChange
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.objects import ObjectChange

from tests.unit.plan import samples
from tests.unit.render.support import ROLES, small_site

PLANNED = {
    "objects": {"flannel": [{"kind": "ConfigMap"}], "gvisor": [{"kind": "RuntimeClass"}]},
    "nodes": {"w1": {"labels": {"a": "b"}, "taints": [{"key": "k", "effect": "NoSchedule"}]}},
}


def action(kind: type, planned: dict[str, t.Any]) -> t.Any:
    """Return an action without the rest of Ansible."""
    made: t.Any = object.__new__(kind)
    made.planned = planned
    made._task = types.SimpleNamespace(check_mode=False)
    return made


def session() -> t.Any:
    return types.SimpleNamespace(site=samples.site(), api=lambda: "api")


def test_objects_come_from_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[t.Any] = []

    def apply(api: str, objects: list[t.Any], *, dry_run: bool) -> list[t.Any]:
        applied.extend(objects)
        return []

    monkeypatch.setattr(cluster_objects, "apply_objects", apply)
    run = action(cluster_objects.ActionModule, PLANNED)
    run.visit(session(), {"layers": ["gvisor", "unknown"]})
    assert applied == [{"kind": "RuntimeClass"}]


def test_labels_and_taints_come_from_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, t.Any] = {}

    def declare(api: str, wanted: dict[str, t.Any], *, dry_run: bool, one_by_one: bool) -> list[t.Any]:
        declared.update(wanted)
        return []

    monkeypatch.setattr(nodes, "declare", declare)
    action(node_metadata.ActionModule, PLANNED).visit(session(), {"hosts": None})
    assert declared == {"w1": Declared({"a": "b"}, [{"key": "k", "effect": "NoSchedule"}])}


class Answering:
    """A session with a cluster that answers, or not."""

    error: Exception | None = None

    def __init__(self, *_: t.Any) -> None:
        pass

    def api(self) -> str:
        if self.error:
            raise self.error
        return "api"


def cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None
) -> dict[str, t.Any]:
    class Now(Answering):
        pass

    Now.error = error
    monkeypatch.setattr(write_plan, "Session", Now)
    monkeypatch.setattr(
        write_plan,
        "apply_objects",
        lambda api, objects, dry_run: [ObjectChange("ConfigMap x/y", {}, {"a": 1})] if dry_run else 1 / 0,
    )
    monkeypatch.setattr(
        nodes,
        "declare",
        lambda api, wanted, dry_run: [NodeChange("w1", {"labels": {}}, {"labels": {"a": "b"}})],
    )
    return write_plan._cluster(small_site(folder), ROLES)


def test_what_the_api_says_is_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster(tmp_path, monkeypatch)
    assert found["state"] == "compared"
    assert found["changes"] == [
        {"kind": "object", "name": "ConfigMap x/y", "before": "", "after": "a: 1\n"},
        {"kind": "node", "name": "Node w1", "before": "labels: {}\n", "after": "labels:\n  a: b\n"},
    ]
    assert found["nodes"]["w1"] == {"labels": {}, "taints": []}
    made = samples.plan(cluster=found)
    assert made.content["summary"]["cluster_changes"] == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnreachableError("Nothing answers.", "Start it."), "no API answers: the cluster does not exist yet"),
        (ClusterError("It is ill.", "Mend it."), "It is ill. Mend it."),
    ],
)
def test_a_cluster_that_was_not_compared_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    found = cluster(tmp_path, monkeypatch, error)
    assert found["state"].startswith(words)
    made = samples.plan(cluster=found)
    assert any(
        warning.startswith("Objects of the cluster were not compared") for warning in made.content["warnings"]
    )


def test_pods_that_pod_security_would_refuse_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [f"team/{number}: runAsNonRoot != true" for number in range(21)]
    monkeypatch.setattr(write_plan, "about_to_be_refused", lambda api, admission: told)
    made = samples.plan(cluster=cluster(tmp_path, monkeypatch))
    (warning,) = [text for text in made.content["warnings"] if "Pod Security" in text]
    assert "team/0: runAsNonRoot" in warning and "and 1 more" in warning
    assert "team/20" not in warning
