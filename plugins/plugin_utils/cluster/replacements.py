# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Notes in the cluster about nodes whose machine is being replaced.

Old and new machine have the same name, so a run that was cut off could not tell them apart. Before the old
Node is deleted, its uid is noted here; a Node of that name with another uid is the new machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object

_NAME = "ironspan-node-replacements"
_PATH = f"/api/v1/namespaces/kube-system/configmaps/{_NAME}"


def noted(api: Api) -> dict[str, str]:
    """Return the uids of the old Nodes by name."""
    found = api.find(_PATH) or {}
    return dict(found.get("data") or {})


def is_new(notes: Mapping[str, str], node: Object) -> bool:
    """Tell whether a Node is the new machine's."""
    metadata = node["metadata"]
    uid = str(metadata["uid"])
    return notes.get(str(metadata["name"]), uid) != uid


def note(api: Api, nodes: Mapping[str, str]) -> None:
    """Add uids of Nodes that are about to be deleted.

    Args:
        api: the cluster.
        nodes: name of the Node -> its uid.
    """
    if nodes:
        _write(api, {**noted(api), **nodes})


def forget(api: Api, names: Sequence[str]) -> None:
    """Take notes away: the replacement is done."""
    before = noted(api)
    left = {name: uid for name, uid in before.items() if name not in names}
    if left != before:
        _write(api, left)


def _write(api: Api, data: Mapping[str, str]) -> None:
    if not data:
        api.delete(_PATH)
        return
    api.apply(
        _PATH,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _NAME, "namespace": "kube-system"},
            "data": dict(data),
        },
    )
