# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Route tables of subnets: the way out through a firewall, and the ways to pods that nothing wraps."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import Route, properties_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate

_KIND = "Microsoft.Network/routeTables"


def route_tables(estate: Estate) -> dict[str, tuple[tuple[str, ...], list[Route]]]:
    """Return what a table is called in ``azure_names`` -> its subnets and its routes.

    A subnet has one table at most. That of the gateway knows the pods, for packets that come from the racks,
    and not the firewall: Azure refuses a default route there.

    Args:
        estate: the estate.
    """
    out = [Route("out", "0.0.0.0/0", estate.outbound.next_hop)] if estate.outbound.kind == "firewall" else []
    found: dict[str, tuple[tuple[str, ...], list[Route]]] = {}
    if out or estate.pods:
        found["routes"] = (("control", "nodes"), [*out, *estate.pod_routes])
    if estate.pods and estate.gateway:
        found["routes-gateway"] = (("gateway",), list(estate.pod_routes))
    return found


def add_route_tables(build: Builder) -> dict[str, str]:
    """Add the tables; return subnet -> id of its own."""
    return {
        subnet: made
        for what, (subnets, routes) in route_tables(build.estate).items()
        for made in [build.add(_KIND, build.estate.name_of(what), properties_of(routes))]
        for subnet in subnets
    }
