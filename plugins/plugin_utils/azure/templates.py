# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What lies in a template whose names are all written out: resources, those of nested templates too."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Iterator, Mapping

DEPLOYMENTS = "microsoft.resources/deployments"
Resource = Mapping[str, t.Any]


def resources(template: Resource) -> Iterator[Resource]:
    """Yield every resource of a template, those of nested templates in the place of these."""
    for one in template.get("resources") or ():
        if is_deployment(one):
            yield from resources(_inner(one))
        else:
            yield one


def by_id(template: Resource, scope: str) -> dict[str, Resource]:
    """Return every resource of a template by its resource id in lower case.

    Args:
        template: with literal names.
        scope: id of what it is deployed to: ``/subscriptions/ID``.
    """
    found: dict[str, Resource] = {}
    for one in template.get("resources") or ():
        if is_deployment(one):
            group = one.get("resourceGroup")
            inner = f"{scope}/resourceGroups/{group}" if group else scope
            found |= by_id(_inner(one), inner)
        else:
            found[_id(one, scope).lower()] = one
    return found


def is_deployment(resource: Resource) -> bool:
    """Tell whether a resource is a nested deployment."""
    return str(resource.get("type")).lower() == DEPLOYMENTS


def _inner(deployment: Resource) -> Resource:
    return (deployment.get("properties") or {}).get("template") or {}


def _id(resource: Resource, scope: str) -> str:
    kind, name = str(resource.get("type")), str(resource.get("name"))
    if kind.lower() == "microsoft.resources/resourcegroups":
        return f"{scope}/resourceGroups/{name}"
    namespace, *types = kind.split("/")
    parts = itertools.chain.from_iterable(zip(types, name.split("/"), strict=False))
    return f"{resource.get('scope') or scope}/providers/{namespace}/{'/'.join(parts)}"
