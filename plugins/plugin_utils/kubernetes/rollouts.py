# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Restarting what runs in pods, as ``kubectl rollout restart`` does, and waiting until it is done."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError

ANNOTATION = "ironspan/restarted-for"
_KINDS = ("daemonsets", "deployments", "statefulsets")
_POLL_S = 2.0


def restart(api: Api, namespaces: Sequence[str], reason: str) -> list[str]:
    """Restart everything in some namespaces that was not restarted for this reason yet.

    Args:
        api: the cluster.
        namespaces: their names; one that is not there has nothing in it.
        reason: written into the pods; the same reason restarts nothing twice.

    Returns:
        Paths of what restarts.
    """
    restarted = []
    for path, item in _workloads(api, namespaces):
        template = item["spec"]["template"]
        if template.get("metadata", {}).get("annotations", {}).get(ANNOTATION) == reason:
            continue
        change = {"spec": {"template": {"metadata": {"annotations": {ANNOTATION: reason}}}}}
        try:
            api.merge(path, change)
        except ApiError as error:
            if error.status != 404:
                raise
            continue
        restarted.append(path)
    return restarted


def wait(api: Api, namespaces: Sequence[str], seconds: float) -> None:
    """Wait until everything in some namespaces runs as it is declared now.

    Raises:
        ClusterError: it took longer than ``seconds``; names what is not there yet.
    """
    end = time.monotonic() + seconds
    while True:
        left = [path for path, item in _workloads(api, namespaces) if not is_done(item)]
        if not left:
            return
        if time.monotonic() > end:
            names = ", ".join(path.split("/namespaces/", 1)[1] for path in left)
            raise ClusterError(
                f"After {seconds:.0f} s these have not restarted: {names}.",
                "Look at their pods (kubectl describe), and run this again.",
            )
        time.sleep(_POLL_S)


def is_done(item: Object) -> bool:
    """Tell whether a DaemonSet, Deployment or StatefulSet has all its pods, and all as declared now."""
    spec, status = item["spec"], item.get("status", {})
    if status.get("observedGeneration", 0) < item["metadata"].get("generation", 0):
        return False
    if "desiredNumberScheduled" in status:
        wanted = status["desiredNumberScheduled"]
        return bool(status.get("updatedNumberScheduled", 0) >= wanted <= status.get("numberAvailable", 0))
    wanted = spec.get("replicas", 1)
    ready = status.get("availableReplicas", status.get("readyReplicas", 0))
    # Without the last, a Deployment whose old pods still run would count.
    return bool(status.get("updatedReplicas", 0) >= wanted <= ready and status.get("replicas", 0) <= wanted)


def _workloads(api: Api, namespaces: Sequence[str]) -> Iterator[tuple[str, t.Any]]:
    for namespace in namespaces:
        for kind in _KINDS:
            path = f"/apis/apps/v1/namespaces/{namespace}/{kind}"
            for item in api.get(path)["items"]:
                yield f"{path}/{item['metadata']['name']}", item
