# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which idle nodes are asked for a preflight: those whose last one is the longest ago.

Nodes say of themselves when they were tested. One that lies is tested too early or too late. How many
are asked at the same time is bounded here.
"""

from __future__ import annotations

import datetime
import json
import time
import typing as t
import uuid
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import is_cordoned, is_ready
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

Object = Mapping[str, t.Any]
ACTION, DONE = "ironspan.io/gpu-action", "ironspan.io/gpu-action-done"
VERDICT, RECORD = "ironspan.io/gpu-preflight", "ironspan.io/gpu-repair"
PREFLIGHT, REPAIR = "ironspan.io/gpu-preflight", "ironspan.io/gpu-repair"
TAINTS = frozenset({PREFLIGHT, REPAIR})
NEW = frozenset({"joining", "testing"})
"""States of the repair controller in which a node waits for its preflight and nothing else."""
SEEN, CONDITION = "ironspan.io/gpu-seen", "GPUPreflight"
ANSWER_S = 3600.0
"""Seconds in which the agent may begin; as long as a preflight may take."""
_CONFLICT = 409
_VENDOR = "nvidia.com/"
_SHOWN = 10
_OVER = frozenset({"Succeeded", "Failed"})


class Asked(t.NamedTuple):
    """A node that is asked.

    Args:
        node: its name.
        version: of the object that this was decided about.
        tested: when its last preflight began, seconds since 1970; 0 for never.
        action: text of the annotation that asks.
    """

    node: str
    version: str
    tested: float
    action: str


class Choice(t.NamedTuple):
    """Who is asked, and why others are not.

    Args:
        asked: nodes, the one that was tested the longest ago first.
        left: node to reason.
    """

    asked: list[Asked]
    left: dict[str, str]


def choose(
    names: Sequence[str],
    nodes: Iterable[Object],
    pods: Iterable[Object],
    *,
    most: int,
    days: int,
    now: float,
) -> Choice:
    """Return which nodes are asked for a preflight.

    Args:
        names: the GPU hosts of the inventory.
        nodes: Node objects.
        pods: of all nodes.
        most: nodes that are tested at the same time, those included that are at it already.
        days: how old the last preflight has to be.
        now: seconds since 1970.
    """
    known = {str(node["metadata"]["name"]): node for node in nodes}
    working = {str(pod.get("spec", {}).get("nodeName")) for pod in pods if works(pod)}
    left = {name: reason(known.get(name), name in working, now) for name in names}
    running = sum(why == TESTED_NOW for why in left.values())
    fit = sorted((tested(known[name]), name) for name, why in left.items() if not why)
    old = [(at, name) for at, name in fit if now - at >= days * 86400]
    left.update((name, f"tested less than {days} days ago") for at, name in fit if (at, name) not in old)
    room = max(0, most - running)
    left.update((name, f"{most} are tested at the same time") for _, name in old[room:])
    asked = [
        Asked(name, str(known[name]["metadata"]["resourceVersion"]), at, _action(known[name], now))
        for at, name in old[:room]
    ]
    return Choice(asked, {name: why for name, why in left.items() if why})


def told(asked: Iterable[Asked], left: Mapping[str, str]) -> list[str]:
    """Return for people who was asked, and who was not; nodes with the same reason share a line.

    Args:
        asked: nodes.
        left: node to reason.
    """
    lines = []
    for one in asked:
        when = time.strftime("%Y-%m-%d", time.gmtime(one.tested)) if one.tested else "never"
        lines.append(f"{one.node}: asked for a preflight (last one: {when})")
    for why in sorted(set(left.values())):
        names = sorted(name for name, reason in left.items() if reason == why)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"not asked, {why}: {', '.join(names[:_SHOWN])}{more}")
    return lines


TESTED_NOW = "it is being tested"
TAINTED = "it has to pass a preflight already"


def reason(node: Object | None, works: bool, now: float) -> str:
    """Return why a node is not asked; empty where it could be."""
    if node is None:
        return "there is no such node"
    annotations = node["metadata"].get("annotations") or {}
    keys = {taint.get("key") for taint in node.get("spec", {}).get("taints") or ()}
    if not is_ready(dict(node)):
        return "it is not Ready"
    if _tested_now(node, annotations, now):
        return TESTED_NOW
    state = mapping(annotations.get(RECORD)).get("state", "ready")
    if REPAIR in keys or state not in ("ready", *(NEW if PREFLIGHT in keys else ())):
        return "it is in repair"
    if is_cordoned(dict(node)):
        return "it is cordoned"
    if works:
        return "a pod uses its GPUs"
    if SEEN not in annotations:
        return "its agent has never named its GPUs"
    return TAINTED if PREFLIGHT in keys else ""


def tested(node: Object) -> float:
    """Return when a node's last preflight began, seconds since 1970; 0 for never, or what cannot be read."""
    said = mapping((node["metadata"].get("annotations") or {}).get(VERDICT))
    return moment(said.get("started"))


def _tested_now(node: Object, annotations: Mapping[str, str], now: float) -> bool:
    if _condition(node).get("reason") == "Running":
        return True
    asked, done = mapping(annotations.get(ACTION)), mapping(annotations.get(DONE))
    return bool(asked) and asked.get("id") != done.get("id") and moment(asked.get("expires")) > now


def _condition(node: Object) -> Object:
    conditions = node.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == CONDITION), {})


def works(pod: Object) -> bool:
    if pod.get("status", {}).get("phase") in _OVER:
        return False
    spec = pod.get("spec", {})
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(
        name.startswith(_VENDOR)
        for container in containers
        for name in (container.get("resources") or {}).get("limits") or {}
    )


def _action(node: Object, now: float) -> str:
    name = f"{node['metadata'].get('uid')}/preflight/{now}"
    until = datetime.datetime.fromtimestamp(now + ANSWER_S, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    return json.dumps({"id": made, "do": "preflight", "gpu": None, "expires": until}, separators=(",", ":"))


def mapping(text: t.Any) -> Mapping[str, t.Any]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def moment(text: t.Any) -> float:
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def write(api: t.Any, node: str, version: str, action: str) -> bool:
    """Write a request on a node; return False where the node is another one than it was decided about.

    Args:
        api: of the cluster, as administrator.
        node: its name.
        version: of the object that this was decided about.
        action: text of the annotation that asks.
    """
    body = {"metadata": {"resourceVersion": version, "annotations": {ACTION: action}}}
    try:
        api.merge(f"/api/v1/nodes/{node}", body)
    except ApiError as error:
        if error.status == _CONFLICT:
            return False
        raise
    return True
