# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a plan says of the cluster is what is applied there; what the API says of a dry run is in the plan."""

from __future__ import annotations

import json
import types
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.action import (
    cluster_objects,
    node_metadata,
    validate,
    write_plan,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions import pruning
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.nodes import Declared, NodeChange
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import ObjectChange
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.owned import Owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import parse, seal

from ironspan.cli import plan_view
from tests.unit.plan import samples
from tests.unit.render.support import ROLES, small_site

RUNTIME_CLASS = {"kind": "RuntimeClass", "metadata": {"name": "gvisor"}}
PLANNED = {
    "objects": {"flannel": [{"kind": "ConfigMap", "metadata": {"name": "x"}}], "gvisor": [RUNTIME_CLASS]},
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
        applied.extend([] if dry_run else objects)
        return []

    monkeypatch.setattr(cluster_objects, "apply_objects", apply)
    monkeypatch.setattr(pruning, "there", lambda api, site: [])
    run = action(cluster_objects.ActionModule, PLANNED)
    run.visit(session(), {"layers": ["gvisor", "unknown"]})
    assert applied == [RUNTIME_CLASS]


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

    def api(self) -> FakeCluster:
        if self.error:
            raise self.error
        return FakeCluster()


class FakeCluster:
    """An API with one node and a rule for every object: it is there, and one field is another."""

    def get(self, path: str, **_: t.Any) -> dict[str, t.Any]:
        return {"items": [{"metadata": {"name": "w1"}}] if path.endswith("/nodes") else []}

    def find(self, path: str, **_: t.Any) -> dict[str, t.Any] | None:
        return None


OBJECTS = [
    {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "x"}} for name in ("same", "other", "ill")
]


def cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None, ill: bool = False
) -> dict[str, t.Any]:
    class Now(Answering):
        pass

    def compared(api: t.Any, objects: list[t.Any]) -> t.Iterator[tuple[t.Any, ObjectChange | None]]:
        for item in objects:
            name = item["metadata"]["name"]
            if name == "ill" and ill:
                raise ClusterError("The cluster does not know it.", "Fix it.")
            yield item, ObjectChange(f"ConfigMap x/{name}", {"a": 0}, {"a": 1}) if name == "other" else None

    Now.error = error
    monkeypatch.setattr(write_plan, "Session", Now)
    monkeypatch.setattr(write_plan, "compared", compared)
    monkeypatch.setattr(
        write_plan,
        "renderer_for",
        lambda site, roles: (types.SimpleNamespace(objects=lambda _: OBJECTS), None),
    )
    monkeypatch.setattr(write_plan, "_used", lambda site, layer, roles: layer == "flannel")
    monkeypatch.setattr(
        write_plan,
        "declared_nodes",
        lambda site: {name: Declared({"a": "b"}) for name in ("w1", "w9")} | {"bare": Declared({})},
    )
    monkeypatch.setattr(
        nodes,
        "declare",
        lambda api, wanted, dry_run: [NodeChange("w1", {"labels": {}}, {"labels": {"a": "b"}})],
    )
    gone = [Owned("identity", "RoleBinding", "x", "gone", "uid-1", "access")]
    monkeypatch.setattr(owned, "found", lambda api, site: gone)
    return write_plan._cluster(small_site(folder), ROLES)


OTHER = {"kind": "object", "name": "ConfigMap x/other", "before": "a: 0\n", "after": "a: 1\n"}


def whole(name: str) -> dict[str, str]:
    text = yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "x"}})
    return {"kind": "object", "name": f"ConfigMap x/{name}", "before": "", "after": text}


def new_node(name: str) -> dict[str, str]:
    after = "labels:\n  a: b\ntaints: []\n"
    return {"kind": "node", "name": f"Node {name}", "before": "", "after": after}


def test_what_the_api_says_is_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster(tmp_path, monkeypatch)
    assert found["state"] == "compared"
    assert found["changes"] == [
        OTHER,
        {"kind": "node", "name": "Node w1", "before": "labels: {}\n", "after": "labels:\n  a: b\n"},
        new_node("w9"),
        listed.removal(Owned("identity", "RoleBinding", "x", "gone", "uid-1", "access")),
    ]
    assert found["nodes"]["w1"] == {"labels": {"a": "b"}, "taints": []}
    made = samples.plan(cluster=found)
    assert made.content["summary"]["cluster_changes"] == 4
    assert [item.action for item in plan_view.cluster_items(found)] == [
        "update",
        "update",
        "create",
        "delete",
    ]


def test_what_could_not_be_compared_is_listed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster(tmp_path, monkeypatch, ill=True)
    assert found["state"] == "The cluster does not know it. Fix it."
    assert [line for line in found["changes"] if line["kind"] == "object"] == [OTHER, whole("ill")]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnreachableError("Nothing answers.", "Start it."), "no API answers: the cluster does not exist yet"),
        (ClusterError("It is ill.", "Fix it."), "It is ill. Fix it."),
    ],
)
def test_a_cluster_that_was_not_compared_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    found = cluster(tmp_path, monkeypatch, error)
    assert found["state"].startswith(words)
    assert found["changes"] == [whole("same"), whole("other"), whole("ill"), new_node("w1"), new_node("w9")]
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


def test_a_plan_that_loses_something_is_refused_before_any_host_is_contacted() -> None:
    lost = Owned("identity", "ClusterRoleBinding", "", "former", "uid-1", "access")
    made = samples.plan(cluster={"changes": [listed.removal(lost), listed.removal(lost._replace(loss=""))]})
    assert any("ClusterRoleBinding former (access) deleted" in text for text in made.content["warnings"])
    with pytest.raises(PlanError, match=r"ClusterRoleBinding former \(access\)"):
        validate.insist_on_consent(made.content, {})
    validate.insist_on_consent(made.content, {"ironspan_allow_destructive": "yes"})
    validate.insist_on_consent(samples.plan().content, {})


@pytest.mark.parametrize("name", ["uid", "why", "loss"])
def test_a_deletion_that_does_not_say_which_and_why_is_no_plan(name: str) -> None:
    line = listed.removal(Owned("identity", "ClusterRoleBinding", "", "former", "uid-1", "access"))
    made = samples.plan(cluster={"changes": [line]})
    content = json.loads(json.dumps(made.content))
    del content["cluster"]["changes"][0][name]
    with pytest.raises(PlanError, match=rf"cluster\.changes\.0\.{name}"):
        parse(seal(content).data)
