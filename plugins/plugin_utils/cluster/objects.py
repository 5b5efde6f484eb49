# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Cluster objects as declared, in one batch: server-side apply, truthful about what changed.

The first apply already owns its fields. (``kubernetes.core.k8s`` creates an absent object by a plain create,
so its next run finds the ownership missing and reports a change although nothing differs.)
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.errors import ApiError, ClusterError


class ObjectChange(t.NamedTuple):
    """One object that differed. ``before`` is None when there was none; Secrets show no data."""

    name: str
    before: Object | None
    after: Object


def apply_objects(api: Api, objects: Sequence[Object], *, dry_run: bool = False) -> list[ObjectChange]:
    """Apply objects in the order given.

    Args:
        api: the cluster.
        objects: each with apiVersion, kind and metadata.name.
        dry_run: ask the API what would come out, change nothing.

    Returns:
        What changed, or would change.

    Raises:
        ClusterError: an object is malformed, or the API refuses it.
    """
    kinds = _Kinds(api)
    announced: set[str] = set()
    changes = []
    for body in objects:
        path = kinds.path(body)
        before = api.find(path)
        after = _apply(api, path, body, announced, dry_run=dry_run)
        if dry_run and before is None and body["kind"] == "Namespace":
            announced.add(body["metadata"]["name"])
        if before is None or _seen(before) != _seen(after):
            changes.append(ObjectChange(_title(body), before and _seen(before), _seen(after)))
    return changes


def _apply(api: Api, path: str, body: Object, announced: set[str], *, dry_run: bool) -> Object:
    try:
        return api.apply(path, body, dry_run=dry_run)
    except ApiError as error:
        space = body["metadata"].get("namespace")
        # A dry run cannot make the namespace that an object further down the list wants to be in.
        if dry_run and error.status == 404 and space in announced:
            return body
        raise


class _Kinds:
    """Knows by discovery under which path a kind lives; each group is asked for once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._groups: dict[str, dict[str, Object]] = {}

    def path(self, body: Object) -> str:
        """Return the path of an object."""
        try:
            version, kind, metadata = str(body["apiVersion"]), str(body["kind"]), body["metadata"]
            name = str(metadata["name"])
        except (KeyError, TypeError) as error:
            raise ClusterError(
                f"An object lacks {error}.", "Give it apiVersion, kind and metadata.name."
            ) from error
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resource = self._resources(root).get(kind)
        if resource is None:
            raise ClusterError(f"The cluster knows no {kind} of {version}.", "Apply what defines it first.")
        if resource["namespaced"]:
            root = f"{root}/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{resource['name']}/{name}"

    def _resources(self, root: str) -> dict[str, Object]:
        if root not in self._groups:
            found = self._api.find(root) or {}
            self._groups[root] = {
                item["kind"]: item for item in found.get("resources", ()) if "/" not in item["name"]
            }
        return self._groups[root]


def _seen(item: Object) -> Object:
    """Return what of an object matters to people: without bookkeeping and without secrets."""
    shown = copy.deepcopy(item)
    shown.pop("status", None)
    for field in ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"):
        shown.get("metadata", {}).pop(field, None)
    return shown


def shown(item: Object | None) -> Object | None:
    """Return an object for a diff, the values of Secrets left out."""
    if item is None or item.get("kind") != "Secret":
        return item
    hidden = dict(item)
    for field in ("data", "stringData"):
        if field in hidden:
            hidden[field] = dict.fromkeys(hidden[field], "(secret)")
    return hidden


def _title(body: Object) -> str:
    metadata = body["metadata"]
    space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{body['kind']} {space}{metadata['name']}"
