# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks Azure about a site's estate. Reads only."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import preflight
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import has_estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import services
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.facts import growth
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._azure_estate import AzureEstate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.azure_estate import (
    MANAGEMENT,
    UNMANAGED,
    wanted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

SCHEDULES = "Microsoft.Authorization/roleAssignmentScheduleInstances"
_SCHEDULES_API = "2020-10-01"
Connect = Callable[[str], Deployments]


def ask_estate(site: Site, connect: Connect | None = None) -> Content:
    """Return how the site's estate stands, ``error`` for why nobody says; empty where there is none.

    Args:
        site: with its variables.
        connect: returns the deployments of a subscription; by default as ``azure_management`` says.
    """
    if not has_estate(site):
        return {}
    variables: Mapping[str, t.Any] = site.variables
    try:
        estate = _declared(site)
        if estate is None:
            return {}
        if connect is None:
            settings = {**(variables.get(MANAGEMENT) or {})}
            api = Deployments(connection(settings), estate.subscription)
        else:
            api = connect(estate.subscription)
        state = wanted(estate, str(variables.get(UNMANAGED) or "detach"))
        found = AzureEstate(lambda _: api).find({estate.name: state})[estate.name]
        answer: Content = {
            "name": estate.name,
            "fault": found.fault,
            "state": dict(found.state or {}),
            "facts": [str(one) for one in state["facts"]],
        }
        if not found.fault:
            answer["ends"] = _ends(api.rest)
            wanting = {"pools": {f"{provider}/{name}": n for (provider, name), n in growth(estate).items()}}
            answer["quota"] = preflight.quota(api.rest, estate.region, wanting)[0] if wanting["pools"] else []
    except RemoteError as error:
        return {"error": str(error).rstrip(".")}
    return answer


@functools.lru_cache(maxsize=1)
def _declared(site: Site) -> Estate | None:
    """Return the site's estate, worked out once a run: who asks Azure and who asks for names both need it."""
    return declared(site.variables)


def _ends(rest: Rest) -> list[Content]:
    """Return role assignments that end. Without Privileged Identity Management there are none."""
    path = f"/subscriptions/{rest.subscription}/providers/{SCHEDULES}"
    try:
        listed = rest.listed(path, _SCHEDULES_API, "to list role assignments that end")
    except Refused:
        return []
    found = []
    for one in listed:
        properties = one.get("properties") or {}
        if properties.get("endDateTime"):
            expanded = properties.get("expandedProperties") or {}
            role = (expanded.get("roleDefinition") or {}).get("displayName")
            who = (expanded.get("principal") or {}).get("displayName") or properties.get("principalId")
            named = role or str(properties.get("roleDefinitionId") or "").rpartition("/")[2]
            found.append(
                {
                    "who": str(who),
                    "role": str(named),
                    "scope": str(properties.get("scope") or ""),
                    "ends": str(properties["endDateTime"]),
                }
            )
    return found


def names_of(site: Site) -> list[str]:
    """Return the names that hosts in Azure reach by private endpoints, of a site with an estate."""
    found = _declared(site)
    return [one.host for one in services(found)] if found else []
