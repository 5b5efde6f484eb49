# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Objects of the cluster that roles declare, applied by the server side with two requests an object.

The kubernetes.core collection does the same in a process of its own per task. Importing its client there and
reading the whole API costs about two seconds of CPU, more than all else the phase does.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

_OF_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
"""Metadata that the API server keeps for itself; they change without anyone changing the object."""


class ObjectChange(t.NamedTuple):
    """What differs of one object; ``before`` is empty when it is new."""

    name: str
    before: Object
    after: Object


def diff_of(change: ObjectChange) -> dict[str, str]:
    """Return a change as ``--diff`` shows it."""
    import yaml  # programs that pack this have none, and show no differences

    return {
        "before_header": change.name,
        "after_header": change.name,
        "before": yaml.safe_dump(change.before) if change.before else "",
        "after": yaml.safe_dump(change.after),
    }


class Paths:
    """Finds out where the API keeps objects; each API group is read once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    def of(self, item: Object) -> str:
        """Return the path of an object.

        Raises:
            ClusterError: the API does not know its kind, or a name is missing.
        """
        version, kind = item["apiVersion"], item["kind"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._kinds:
            listing = self._api.find(base) or {}
            self._kinds[version] = {
                resource["kind"]: (resource["name"], resource["namespaced"])
                for resource in listing.get("resources", ())
                if "/" not in resource["name"]
            }
        if kind not in self._kinds[version]:
            raise ClusterError(
                f"The cluster does not know {kind} of {version}.", "Apply what brings this kind first."
            )
        plural, namespaced = self._kinds[version][kind]
        metadata = item["metadata"]
        if not namespaced:
            return f"{base}/{plural}/{metadata['name']}"
        if "namespace" not in metadata:
            raise ClusterError(f"{kind} {metadata['name']} has no namespace.", "Write one in its metadata.")
        return f"{base}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"


def stated(item: Object) -> Object:
    """Return what somebody stated about an object: without its status and the server's own metadata."""
    kept = copy.deepcopy({key: value for key, value in item.items() if key != "status"})
    for name in _OF_THE_SERVER:
        kept.get("metadata", {}).pop(name, None)
    return kept


def name_of(item: Object) -> str:
    """Return kind, namespace and name of an object, as changes are called."""
    metadata = item["metadata"]
    return f"{item['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"


def apply_objects(api: Api, objects: Sequence[Object], *, dry_run: bool = False) -> list[ObjectChange]:
    """Make objects as they are declared, in the order given.

    Args:
        api: the cluster.
        objects: what they shall be; fields of other owners stay.
        dry_run: only tell what would change.

    Returns:
        The objects that differed.
    """
    return [change for _, change in _applied(api, objects, dry_run) if change is not None]


def compared(api: Api, objects: Sequence[Object]) -> t.Iterator[tuple[Object, ObjectChange | None]]:
    """Yield each object with what would change of it, None when nothing would; nothing is changed."""
    return _applied(api, objects, dry_run=True)


def _applied(
    api: Api, objects: Sequence[Object], dry_run: bool
) -> t.Iterator[tuple[Object, ObjectChange | None]]:
    paths = Paths(api)
    for item in objects:
        path = paths.of(item)
        before = api.find(path)
        # The namespace of a new object may be new as well, so a dry run cannot ask the API about it.
        after = item if before is None and dry_run else api.apply(path, item, dry_run=dry_run)
        differs = before is None or stated(before) != stated(after)
        yield item, ObjectChange(name_of(item), stated(before or {}), stated(after)) if differs else None
