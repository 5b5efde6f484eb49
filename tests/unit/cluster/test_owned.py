# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a layer made and does not declare any more goes; nothing else ever does."""

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions import pruning
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.owned import LAYER, SITE, Owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from hypothesis import given, settings
from hypothesis import strategies as st

Object = dict[str, t.Any]
OURS = {"app.kubernetes.io/managed-by": "ironspan"}


class Memory:
    """An API that keeps objects by path, and deletes them by uid."""

    def __init__(self) -> None:
        self.kept: dict[str, Object] = {}
        self.missing: set[str] = set()
        self.lists = 0
        self._made = 0

    def put(self, kind: str, name: str, where: str = "", **item: t.Any) -> str:
        """Make an object and return its path."""
        self._made += 1
        metadata = {"name": name, **({"namespace": where} if where else {}), "labels": item.pop("labels", {})}
        path = Owned("", kind, where, name, "").path
        self.kept[path] = {**item, "kind": kind, "metadata": {**metadata, "uid": f"uid-{self._made}"}}
        return path

    def get(self, path: str, **query: str) -> Object:
        """List a kind by labels: ``name`` has to be there, ``name=value`` has to be so."""
        self.lists += 1
        kind = next(kind for kind, base in owned.KINDS.items() if base == path)
        if kind in self.missing:
            raise ApiError(404, "NotFound", "no such kind", "GET")
        terms = [term.partition("=") for term in query["labelSelector"].split(",")]
        return {
            "items": [
                copy.deepcopy(item)
                for item in self.kept.values()
                if item["kind"] == kind
                and all(
                    name in item["metadata"]["labels"]
                    and (not sign or item["metadata"]["labels"][name] == value)
                    for name, sign, value in terms
                )
            ]
        }

    def delete(self, path: str, body: Object) -> bool:
        """Delete the very object, or refuse."""
        if path not in self.kept:
            return False
        if self.kept[path]["metadata"]["uid"] != body["preconditions"]["uid"]:
            raise ApiError(409, "Conflict", "the UID in the precondition is another", "DELETE")
        del self.kept[path]
        return True


def api(memory: Memory) -> t.Any:
    return memory


def labels(layer: str, site: str = "small") -> dict[str, str]:
    return {LAYER: layer, SITE: site}


def test_labels_are_added_and_shared_things_keep_theirs() -> None:
    plain = {"kind": "ConfigMap", "metadata": {"name": "m", "labels": {"a": "b"}}}
    shared = {"kind": "Service", "metadata": {"name": "s", "labels": {LAYER: owned.SHARED}}}
    bare = {"kind": "Namespace", "metadata": {"name": "n"}}
    made = owned.labelled([plain, shared, bare], "small", "dns")
    assert [item["metadata"]["labels"] for item in made] == [
        {LAYER: "dns", SITE: "small", "a": "b"},
        {LAYER: "shared", SITE: "small"},
        {LAYER: "dns", SITE: "small"},
    ]
    assert plain["metadata"] == {"name": "m", "labels": {"a": "b"}}, "what is given stays as it was"


def test_what_is_found_says_what_goes_with_it_and_bindings_go_first() -> None:
    memory = Memory()
    group, account = {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s"}
    memory.put("Namespace", "n", labels=labels("flannel"))
    memory.put("ClusterRole", "r", labels=labels("flannel"))
    memory.put("ClusterRoleBinding", "people", labels=labels("flannel"), subjects=[account, group])
    memory.put("RoleBinding", "pods", "n", labels=labels("flannel"), subjects=[account])
    memory.put("ConfigMap", "of another site", "n", labels=labels("flannel", "other"))
    memory.put("ConfigMap", "nobody's", "n", labels=OURS)
    memory.missing.add("CiliumNetworkPolicy")
    assert [(one.title, one.loss) for one in owned.found(api(memory), "small")] == [
        ("RoleBinding n/pods", ""),
        ("ClusterRoleBinding people", "access"),
        ("ClusterRole r", ""),
        ("Namespace n", "data"),
    ]


def test_what_former_releases_made_of_two_layers_is_known() -> None:
    memory = Memory()
    identity = {**OURS, "app.kubernetes.io/component": "identity"}
    memory.put("ClusterRole", "old", labels=identity)
    memory.put("ClusterRole", "new", labels={**identity, **labels("identity")})
    memory.put(
        "ConfigMap", "record", "kube-system", labels={**OURS, "app.kubernetes.io/component": "admission"}
    )
    memory.put("ConfigMap", "egress", "x", labels={**OURS, "app.kubernetes.io/component": "egress"})
    there = owned.found(api(memory), "small")
    assert sorted((one.layer, one.name) for one in there) == [
        ("admission", "record"), ("identity", "new"), ("identity", "old"),
    ]  # fmt: skip


NAMES = st.sampled_from(("a", "b", "c"))
THINGS = st.tuples(st.sampled_from(("ConfigMap", "Service")), NAMES, NAMES)


@given(
    st.sets(THINGS),
    st.dictionaries(
        THINGS,
        st.sampled_from(
            ({}, labels("dns"), labels("egress"), labels("dns", "other"), labels("shared"), OURS)
        ),
    ),
)
@settings(max_examples=100, deadline=None)
def test_only_what_the_layer_made_and_does_not_declare_goes(
    declared: set[tuple[str, str, str]], there: dict[tuple[str, str, str], dict[str, str]]
) -> None:
    memory = Memory()
    for (kind, where, name), mark in there.items():
        memory.put(kind, name, where, labels=dict(mark))
    wanted = [
        {"kind": kind, "metadata": {"namespace": where, "name": name}} for kind, where, name in declared
    ]
    gone = owned.undeclared(owned.found(api(memory), "small"), "dns", wanted)
    owned.remove(api(memory), gone)
    left = {
        (item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
        for item in memory.kept.values()
    }
    assert left == {thing for thing, mark in there.items() if mark != labels("dns") or thing in declared}


def test_an_object_that_was_made_anew_is_not_deleted() -> None:
    memory = Memory()
    path = memory.put("Service", "s", "x", labels=labels("dns"))
    gone = owned.found(api(memory), "small")
    memory.put("Service", "s", "x", labels=labels("dns"))
    with pytest.raises(ClusterError, match="Service x/s was recreated"):
        owned.remove(api(memory), gone)
    assert path in memory.kept
    del memory.kept[path]
    assert owned.remove(api(memory), gone) == [], "it is gone already"


def test_the_cluster_is_listed_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "RunFolder", lambda: RunFolder(tmp_path / "run"))
    memory = Memory()
    memory.put("Service", "s", "x", labels=labels("dns"))
    first = pruning.there(api(memory), "small")
    count = memory.lists
    assert pruning.there(api(memory), "small") == first and memory.lists == count
    assert count <= 30


def test_a_pod_network_is_never_pruned_as_a_whole() -> None:
    there = [Owned("flannel", "DaemonSet", "kube-flannel", "kube-flannel-ds", "u")]
    other = [{"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "kube-flannel"}}]
    assert pruning.undeclared(there, "flannel", []) == []
    assert pruning.undeclared(there, "flannel", other) == there
    assert pruning.undeclared([there[0]._replace(layer="gvisor")], "gvisor", [])


@pytest.mark.parametrize(("loss", "asked"), [("", False), ("data", True), ("access", True)])
def test_what_is_lost_needs_consent(loss: str, asked: bool) -> None:
    gone = [Owned("identity", "RoleBinding", "x", "b", "u", loss)]
    pruning.insist_on_consent(gone, {"ironspan_allow_destructive": "true"})
    if asked:
        with pytest.raises(PlanError, match=rf"RoleBinding x/b \({loss} is lost\)"):
            pruning.insist_on_consent(gone, {})
    else:
        pruning.insist_on_consent(gone, {})
