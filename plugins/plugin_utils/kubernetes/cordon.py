# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Cordons nodes, and uncordons only those that were cordoned here.

An annotation on the node says that it was cordoned by a change and not by a person, so that a change never
uncordons a node which somebody keeps cordoned on purpose. It goes in the same request: a kill cannot part
the two.
"""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

ANNOTATION = "ironspan/cordoned"
DRIVER_CHANGE = "ironspan/driver-change"
"""What a wave notes of a node whose GPU driver it changes; it goes when the node is uncordoned."""
_ATTEMPTS = 5


def node_path(name: str) -> str:
    """Return the path of a Node object."""
    return f"/api/v1/nodes/{name}"


def is_cordoned(node: Object) -> bool:
    """Tell whether a node takes no new pods."""
    return bool(node.get("spec", {}).get("unschedulable"))


def cordoned_here(node: Object) -> bool:
    """Tell whether a node was cordoned by ``cordon``."""
    return ANNOTATION in (node["metadata"].get("annotations") or {})


def closed_at(node: Object) -> str:
    """Return when ``cordon`` cordoned a node, in UTC as the API writes times, "" where it did not."""
    return str((node["metadata"].get("annotations") or {}).get(ANNOTATION) or "")


def is_ready(node: Object) -> bool:
    """Tell whether a node's kubelet says that it is ready."""
    return ready_condition(node).get("status") == "True"


def ready_condition(node: Object) -> Object:
    """Return the condition Ready of a node, empty when it has none yet."""
    conditions = node.get("status", {}).get("conditions", ())
    return next((dict(condition) for condition in conditions if condition["type"] == "Ready"), {})


def boot_of(node: Object) -> str:
    """Return the boot that a node's kubelet reports, "" when it has not yet."""
    return str(node["status"].get("nodeInfo", {}).get("bootID", ""))


def is_in_service(node: Object) -> bool:
    """Tell whether a node takes pods and runs them."""
    return is_ready(node) and not is_cordoned(node)


def out_of_service(api: Api) -> frozenset[str]:
    """Return the names of all nodes that are cordoned or not Ready, by one request."""
    return frozenset(
        str(node["metadata"]["name"]) for node in api.get("/api/v1/nodes")["items"] if not is_in_service(node)
    )


def cordon(api: Api, name: str) -> bool:
    """Close a node for new pods; one that somebody else closed stays as it is.

    Returns:
        Whether it was open.

    Raises:
        ApiError: there is no such node, or it changes all the time.
    """
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    return _write(api, name, lambda node: None if is_cordoned(node) else (True, {ANNOTATION: now}))


def uncordon(api: Api, name: str) -> bool:
    """Uncordon a node that ``cordon`` cordoned; one that somebody else cordoned stays so.

    Returns:
        Whether it was closed here.

    Raises:
        ApiError: there is no such node, or it changes all the time.
    """
    over = {ANNOTATION: None, DRIVER_CHANGE: None}
    return _write(api, name, lambda node: (None, over) if cordoned_here(node) else None)


def _write(
    api: Api, name: str, decide: t.Callable[[Object], tuple[bool | None, Mapping[str, str | None]] | None]
) -> bool:
    """Write what ``decide`` says of the node as it is: (unschedulable, annotations), or None to leave it."""
    path = node_path(name)
    for attempt in range(1, _ATTEMPTS + 1):
        node = api.get(path)
        decision = decide(node)
        if decision is None:
            return False
        unschedulable, annotations = decision
        metadata = {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "annotations": dict(annotations),
        }
        try:
            api.merge(path, {"metadata": metadata, "spec": {"unschedulable": unschedulable}})
        except ApiError as error:
            # Kubelets write their nodes every few seconds.
            if error.status == 409 and attempt < _ATTEMPTS:
                continue
            raise
        return True
    raise AssertionError("unreachable")
