# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waiting for objects of the cluster, and restarting what runs in pods as ``kubectl rollout restart`` does.

Whoever waits for objects does it with ``until`` or ``insist``, and asks ``is_taken_up`` and ``is_done`` about
workloads. ``cilium.rollout`` waits in its own way: it goes on as long as something comes up.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError

ANNOTATION = "ironspan/restarted-for"
_KINDS = ("daemonsets", "deployments", "statefulsets")
_POLL_SECONDS = 1.0
_SHOWN = 8
Judge = Callable[[], list[str]]
"""Says what is wrong, nothing when all is well."""


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

    def left() -> list[str]:
        found = [path for path, item in _workloads(api, namespaces) if not is_done(item)]
        return [path.split("/namespaces/", 1)[1] for path in found]

    names = until(left, seconds)
    if names:
        raise ClusterError(
            f"After {seconds:.0f} s these have not restarted: {', '.join(names)}.",
            "Look at their pods (kubectl describe), and run this again.",
        )


def until(
    judge: Judge, seconds: float, say: Callable[[str], None] = lambda text: None, pause: float | None = None
) -> list[str]:
    """Ask until nothing is wrong or time is over.

    Args:
        judge: returns what is wrong.
        seconds: how long to wait.
        say: told what it waits for, whenever that changes.
        pause: seconds between two questions; one by default.

    Returns:
        What is still wrong, empty when nothing is.
    """
    end = time.monotonic() + seconds
    told: list[str] = []
    while True:
        try:
            problems = judge()
        except ClusterError as error:
            problems = [str(error)]
        if not problems or time.monotonic() >= end:
            return problems
        if problems != told:
            say(f"waiting: {'; '.join(problems[:2])}")
            told = problems
        time.sleep(_POLL_SECONDS if pause is None else pause)


def insist(judge: Judge, seconds: float, say: Callable[[str], None], remedy: str) -> None:
    """Wait until nothing is wrong.

    Args:
        judge: returns what is wrong.
        seconds: how long to wait.
        say: told what it waits for, whenever that changes.
        remedy: what to do when it stays wrong.

    Raises:
        ClusterError: something is wrong still.
    """
    problems = until(judge, seconds, say)
    if problems:
        raise ClusterError(f"After {seconds:.0f} s: {'; '.join(problems[:_SHOWN])}.", remedy)


def is_taken_up(item: Object) -> bool:
    """Tell whether the controller of an object has looked at what is declared now."""
    seen = (item.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= item["metadata"].get("generation", 0))


def is_done(item: Object) -> bool:
    """Tell whether a DaemonSet, Deployment or StatefulSet has all its pods, and all as declared now."""
    spec, status = item["spec"], item.get("status") or {}
    if not is_taken_up(item):
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
