# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the controller and people write for each other beside the nodes: two ConfigMaps."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object

from ironspan.gpu_repair import records
from ironspan.gpu_repair.model import Decision, World
from ironspan.gpu_repair.settings import NAMESPACE, Settings

STATUS, STORM = "gpu-repair-status", "storm-release"
LONGEST_RELEASE = 86400.0
"""A storm is released for a day at most."""
MOST = 200
"""Nodes whose reason is written down."""


def path_of(name: str) -> str:
    """Return the path of a ConfigMap."""
    return f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"


def dumps(
    world: World,
    settings: Settings,
    decision: Decision,
    waiting: Mapping[str, str],
    proposed: Mapping[str, str],
    racks: Mapping[str, str],
) -> str:
    """Return what the controller tells of itself; without a time it stays the same while nothing changes."""
    return json.dumps(
        {
            "mode": world.mode,
            "frozen": world.frozen,
            "nodes": len(settings.nodes),
            "out": decision.out,
            "most_out": decision.most_out,
            "at_work": decision.at_work,
            "most_at_once": settings.limits.most_at_once,
            "storm": decision.storm,
            "waiting": dict(sorted(waiting.items())[:MOST]),
            "proposed": dict(sorted(proposed.items())[:MOST]),
            "racks": dict(sorted(racks.items())[:MOST]),
        }
    )


def publish(api: Api, text: str, now: float) -> None:
    """Write it. Raises ClusterError."""
    body: Object = {"data": {"status": text, "written": records.moment(now)}}
    api.merge(path_of(STATUS), body)


def published(api: Api) -> dict[str, t.Any]:
    """Return what the controller told last, empty when it never did. Raises ClusterError."""
    data = (api.find(path_of(STATUS)) or {}).get("data") or {}
    try:
        found = json.loads(data.get("status", "{}"))
    except ValueError:
        return {}
    return {**found, "written": str(data.get("written", ""))} if isinstance(found, dict) else {}


def released_until(api: Api, now: float) -> float:
    """Return until when a storm is released, 0 when it is not. Raises ClusterError."""
    data = (api.find(path_of(STORM)) or {}).get("data") or {}
    try:
        until = records.seconds(data.get("until"))
    except ValueError:
        return 0.0
    return until if now < until <= now + LONGEST_RELEASE else 0.0


def release_storm(api: Api, seconds: float, reason: str, now: float) -> None:
    """Release a storm; the API server decides who may. Raises ClusterError."""
    body: Object = {"data": {"until": records.moment(now + seconds), "reason": records.clean(reason)}}
    api.merge(path_of(STORM), body)
