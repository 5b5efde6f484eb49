# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How far a deployment is, from its operations."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.templates import DEPLOYMENTS

_NAMED = 3


def inner_deployments(operations: Iterable[Mapping[str, t.Any]]) -> Iterator[tuple[str, str]]:
    """Yield resource group and name of each deployment that operations have begun."""
    seen = set()
    for one in operations:
        target = (one.get("properties") or {}).get("targetResource") or {}
        parts = str(target.get("id") or "").split("/")
        lower = [part.lower() for part in parts]
        if str(target.get("resourceType")).lower() == DEPLOYMENTS and "resourcegroups" in lower[:-1]:
            found = (parts[lower.index("resourcegroups") + 1], parts[-1])
            if found not in seen:
                seen.add(found)
                yield found


def text(operations: Iterable[Mapping[str, t.Any]], total: int) -> str:
    """Return how far a deployment is, in one line.

    Args:
        operations: of it and of those in it.
        total: how many resources it has.
    """
    states: dict[str, tuple[str, str]] = {}
    for one in operations:
        properties = one.get("properties") or {}
        target = properties.get("targetResource") or {}
        kind = str(target.get("resourceType") or "")
        if not target.get("id") or kind.lower() == DEPLOYMENTS:
            continue
        if str(properties.get("provisioningOperation") or "").lower() not in ("create", ""):
            continue
        name = f"{kind.rpartition('/')[2]} {target.get('resourceName') or ''}".strip()
        states[str(target["id"]).lower()] = (str(properties.get("provisioningState")).lower(), name)
    done = sum(state == "succeeded" for state, _ in states.values())
    failed = sorted(name for state, name in states.values() if state in ("failed", "canceled"))
    going = sorted(
        name for state, name in states.values() if state not in ("succeeded", "failed", "canceled")
    )
    said = f"{done} of {total} resources"
    if going:
        more = f" and {len(going) - _NAMED} more" if len(going) > _NAMED else ""
        said += f", at {', '.join(going[:_NAMED])}{more}"
    if failed:
        said += f", failed: {', '.join(failed[:_NAMED])}"
    return said
