# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Labels and taints of nodes, as the inventory declares them; everything else on a node is left alone.

Labels go by server-side apply, so the API itself remembers which are ours and takes away those no longer
declared. A node's taints are one atomic list there, shared with the node controller's own; they are merged
here under the object's version, and an annotation remembers which are ours.
"""

from __future__ import annotations

import concurrent.futures
import json
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import (
    FIELD_MANAGER,
    Api,
    Object,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

ANNOTATION = "ironspan/taints"
_PATH = "/api/v1/nodes"
_PARALLEL = 8
_ATTEMPTS = 5


class Declared(t.NamedTuple):
    """What the inventory says of one node. A taint is a dict of key, value (may be missing) and effect."""

    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]] = ()


class NodeChange(t.NamedTuple):
    """What differs on one node, for people and for a diff."""

    node: str
    before: Object
    after: Object


def plan(node: Object, declared: Declared) -> NodeChange | None:
    """Compare a node with what is declared.

    Args:
        node: the Node object.
        declared: its labels and taints in the inventory.

    Returns:
        The labels and taints that differ, None when nothing does.
    """
    current = dict(node["metadata"].get("labels", {}))
    labels = {name: value for name, value in current.items() if name not in _owned_labels(node)}
    labels.update(declared.labels)
    changed = {name for name in current.keys() | labels.keys() if current.get(name) != labels.get(name)}
    found, wanted = _taints(node), merged_taints(node, declared)
    if not changed and found == wanted and _remembered(node) == _identities(declared.taints):
        return None
    return NodeChange(
        node["metadata"]["name"],
        {"labels": {n: current[n] for n in sorted(changed & current.keys())}, "taints": found},
        {"labels": {n: labels[n] for n in sorted(changed & labels.keys())}, "taints": wanted},
    )


def merged_taints(node: Object, declared: Declared) -> list[Object]:
    """Return the node's taints with ours as declared and everyone else's as they are."""
    ours = _remembered(node) | _identities(declared.taints)
    others = [taint for taint in _taints(node) if _identity(taint) not in ours]
    return others + [dict(taint) for taint in declared.taints]


def declare(
    api: Api, wanted: Mapping[str, Declared], *, dry_run: bool = False, one_by_one: bool = False
) -> list[NodeChange]:
    """Make labels and taints as declared: one list, then a few requests for each node that differs.

    Args:
        api: the cluster.
        wanted: node name -> what is declared. Names the cluster does not have are left out.
        dry_run: only tell what would change.
        one_by_one: ask for each of these nodes, and not for all that the cluster has.

    Returns:
        The changes.
    """
    changes = [
        change
        for node in (_named(api, wanted) if one_by_one else api.get(_PATH)["items"])
        if node["metadata"]["name"] in wanted
        and (change := plan(node, wanted[node["metadata"]["name"]])) is not None
    ]
    if not dry_run:
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(lambda change: _apply(api, change.node, wanted[change.node]), changes))
    return changes


def _named(api: Api, names: t.Iterable[str]) -> list[Object]:
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        found = pool.map(lambda name: api.find(f"{_PATH}/{name}"), names)
        return [node for node in found if node is not None]


def _apply(api: Api, name: str, declared: Declared) -> None:
    path = f"{_PATH}/{name}"
    remembered = json.dumps(sorted(_identities(declared.taints)))
    for attempt in range(1, _ATTEMPTS + 1):
        node = api.get(path)
        taints = merged_taints(node, declared)
        # The annotation goes with the taints: written later, a kill between the two would orphan them.
        if taints != _taints(node) or _remembered(node) != _identities(declared.taints):
            metadata = {
                "resourceVersion": node["metadata"]["resourceVersion"],
                "annotations": {ANNOTATION: remembered},
            }
            try:
                api.merge(path, {"metadata": metadata, "spec": {"taints": taints or None}})
            except ApiError as error:
                if error.status == 409 and attempt < _ATTEMPTS:
                    continue
                raise
        break
    api.apply(
        path,
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(declared.labels)}},
    )


def _owned_labels(node: Object) -> set[str]:
    for entry in node["metadata"].get("managedFields", ()):
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply":
            labels = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            return {field.removeprefix("f:") for field in labels if field != "."}
    return set()


def _taints(node: Object) -> list[Object]:
    return list(node.get("spec", {}).get("taints", ()))


def _identity(taint: Mapping[str, str]) -> str:
    return f"{taint['key']}:{taint['effect']}"


def _identities(taints: Sequence[Mapping[str, str]]) -> set[str]:
    return {_identity(taint) for taint in taints}


def _remembered(node: Object) -> set[str]:
    try:
        return set(json.loads(node["metadata"].get("annotations", {}).get(ANNOTATION, "[]")))
    except (ValueError, TypeError):
        return set()
