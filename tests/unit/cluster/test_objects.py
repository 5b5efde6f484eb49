# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Objects find their path, are applied in order, and only what somebody stated counts as a difference."""

from __future__ import annotations

import copy
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    Paths,
    apply_objects,
    stated,
)

GROUPS: dict[str, Object] = {
    "/api/v1": {
        "resources": [
            {"name": "namespaces", "kind": "Namespace", "namespaced": False},
            {"name": "namespaces/finalize", "kind": "Namespace", "namespaced": False},
            {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        ]
    },
    "/apis/apps/v1": {
        "resources": [
            {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
            {"name": "daemonsets/status", "kind": "DaemonSet", "namespaced": True},
        ]
    },
}


class Memory:
    """An API that keeps objects in memory and counts what it is asked."""

    def __init__(self) -> None:
        self.kept: dict[str, Object] = {}
        self.requests: list[tuple[str, str]] = []

    def find(self, path: str) -> Object | None:
        """Read an object or the resources of a group."""
        self.requests.append(("GET", path))
        return copy.deepcopy(GROUPS.get(path) or self.kept.get(path))

    def apply(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Merge as server-side apply does with maps, and write what a server adds."""
        self.requests.append(("DRY" if dry_run else "PATCH", path))
        found = copy.deepcopy(self.kept.get(path, {"status": {"made": True}}))
        merge(found, body)
        found["metadata"]["resourceVersion"] = str(len(self.requests))
        found["metadata"]["managedFields"] = [{"time": len(self.requests)}]
        if not dry_run:
            self.kept[path] = found
        return copy.deepcopy(found)


def merge(into: Object, body: Object) -> None:
    """Merge nested maps."""
    for key, value in body.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def api(memory: Memory) -> Api:
    """Pass the memory off as a client."""
    return t.cast(Api, memory)


SPACE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
MAP: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "m", "namespace": "n"},
    "data": {"a": "1"},
}
DAEMONS: Object = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "n"}}


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (SPACE, "/api/v1/namespaces/n"),
        (MAP, "/api/v1/namespaces/n/configmaps/m"),
        (DAEMONS, "/apis/apps/v1/namespaces/n/daemonsets/d"),
    ],
)
def test_paths(item: Object, path: str) -> None:
    assert Paths(api(Memory())).of(item) == path


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({**MAP, "kind": "Nothing"}, "does not know Nothing of v1"),
        ({**MAP, "apiVersion": "new.example.com/v1"}, "does not know ConfigMap of new.example.com/v1"),
        ({**MAP, "metadata": {"name": "m"}}, "ConfigMap m has no namespace"),
    ],
)
def test_an_object_without_a_place_is_refused(item: Object, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        Paths(api(Memory())).of(item)


def test_objects_are_applied_in_order_and_groups_read_once() -> None:
    memory = Memory()
    changes = apply_objects(api(memory), [SPACE, MAP, DAEMONS])
    assert [change.name for change in changes] == ["Namespace n", "ConfigMap n/m", "DaemonSet n/d"]
    assert [path for verb, path in memory.requests if verb == "PATCH"] == list(memory.kept)
    assert [path for verb, path in memory.requests if path in GROUPS] == ["/api/v1", "/apis/apps/v1"]


def test_a_second_time_nothing_changes() -> None:
    memory = Memory()
    apply_objects(api(memory), [SPACE, MAP])
    assert apply_objects(api(memory), [SPACE, MAP]) == []


def test_what_others_stated_stays_and_drift_is_repaired() -> None:
    memory = Memory()
    apply_objects(api(memory), [MAP])
    kept = memory.kept["/api/v1/namespaces/n/configmaps/m"]
    kept["data"] = {"a": "drifted", "b": "of another owner"}
    (change,) = apply_objects(api(memory), [MAP])
    assert change.before["data"] == {"a": "drifted", "b": "of another owner"}
    assert change.after["data"] == {"a": "1", "b": "of another owner"}


def test_a_dry_run_changes_nothing_and_tells_the_same() -> None:
    memory = Memory()
    apply_objects(api(memory), [MAP])
    before = copy.deepcopy(memory.kept)
    other = {**MAP, "data": {"a": "2"}}
    (change,) = apply_objects(api(memory), [other], dry_run=True)
    assert (change.before["data"], change.after["data"]) == ({"a": "1"}, {"a": "2"})
    assert memory.kept == before


def test_a_dry_run_shows_new_objects_as_declared_without_asking() -> None:
    memory = Memory()
    changes = apply_objects(api(memory), [SPACE, MAP], dry_run=True)
    assert [(change.before, change.after) for change in changes] == [({}, SPACE), ({}, MAP)]
    assert not [verb for verb, _path in memory.requests if verb != "GET"]


def test_stated_leaves_out_what_the_server_keeps() -> None:
    item = {
        "kind": "ConfigMap",
        "metadata": {"name": "m", "uid": "u", "generation": 3, "labels": {"x": "y"}},
        "status": {"a": 1},
    }
    assert stated(item) == {"kind": "ConfigMap", "metadata": {"name": "m", "labels": {"x": "y"}}}
    assert item["metadata"]["uid"] == "u"  # type: ignore[index]
