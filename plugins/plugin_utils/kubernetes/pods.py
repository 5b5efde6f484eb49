# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What becomes of each pod of a node that is drained, and which disruption budget holds one back."""

from __future__ import annotations

import enum
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object

MANAGED_BY = {"app.kubernetes.io/managed-by": "ironspan", "app.kubernetes.io/name": "ironspan-verify"}
"""Labels of what a verification starts and takes away again."""
_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's picture of a static pod, which only the kubelet itself can end."""


class Fate(enum.Enum):
    """What a drain does with a pod."""

    STAYS = "stays"
    """It belongs to the node: a static pod, or one of a DaemonSet, which would make it again at once."""
    GOES = "goes"
    """It is evicted; its controller makes another one elsewhere."""
    ORPHAN = "orphan"
    """Nobody would make it again."""
    DATA = "data"
    """It keeps data on the node's disk, which would be lost."""


def fate_of(pod: Object) -> Fate:
    """Return what a drain does with a pod, before anybody accepted a loss.

    Args:
        pod: the Pod object.
    """
    metadata = pod["metadata"]
    if _MIRROR in (metadata.get("annotations") or {}):
        return Fate.STAYS
    controller = controller_of(pod)
    if controller.get("kind") == "DaemonSet":
        return Fate.STAYS
    if is_finished(pod) or metadata.get("deletionTimestamp"):
        # It has nothing to lose any more.
        return Fate.GOES
    if MANAGED_BY.items() <= (metadata.get("labels") or {}).items():
        # Of a verification that has just ended: its namespace is being deleted, pod by pod.
        return Fate.GOES
    if not controller:
        return Fate.ORPHAN
    if disk_volumes(pod):
        return Fate.DATA
    return Fate.GOES


def controller_of(pod: Object) -> Object:
    """Return the owner that makes the pod again, empty when there is none."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((dict(owner) for owner in owners if owner.get("controller")), {})


def is_finished(pod: Object) -> bool:
    """Tell whether all containers of a pod have ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def disk_volumes(pod: Object) -> list[str]:
    """Return the names of the emptyDir volumes with which a pod keeps data on the node's disk.

    A volume in memory (``medium: Memory``, which every training job has as /dev/shm) is gone with the
    processes that use it in any case.
    """
    volumes = pod.get("spec", {}).get("volumes") or ()
    return [
        str(volume["name"])
        for volume in volumes
        if volume.get("emptyDir") is not None and volume["emptyDir"].get("medium") != "Memory"
    ]


def name_of(pod: Object) -> str:
    """Return NAMESPACE/NAME."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def budgets_of(pod: Object, budgets: Iterable[Object]) -> list[Object]:
    """Return the PodDisruptionBudgets that a pod counts for.

    Args:
        pod: the pod.
        budgets: all of its namespace.
    """
    labels = pod["metadata"].get("labels") or {}
    return [budget for budget in budgets if selects(budget.get("spec", {}).get("selector"), labels)]


def selects(selector: t.Any, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector of policy/v1 matches: none matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(expression, labels) for expression in selector.get("matchExpressions") or ())


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values") or ()
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) is bool(operator == "Exists")


def budget_text(budget: Object) -> str:
    """Say in one clause what a budget allows now, and how to look at it."""
    namespace, name = budget["metadata"]["namespace"], budget["metadata"]["name"]
    status = budget.get("status", {})
    allowed = status.get("disruptionsAllowed", 0)
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return (
        f"PodDisruptionBudget {namespace}/{name} allows {allowed or 'no'} more "
        f"({healthy} healthy, {desired} needed; kubectl -n {namespace} describe pdb {name})"
    )
