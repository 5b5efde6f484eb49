# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Routes of a virtual network to the pods of nodes in Azure, as a template for its resource manager.

Only data: nothing here speaks to Azure. docs/azure-network.md says for which clusters such routes are of use.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

ROUTES_OF_A_TABLE = 400
"""User-defined routes per route table (Azure, "Networking limits", of 2022-12-05)."""
ROUTES_OF_A_MANAGED_TABLE = 1000
"""The same where Azure Virtual Network Manager keeps the table (Azure, "Automate management of user-defined
routes", 2024-10-23)."""
_KIND = "Microsoft.Network/routeTables"
_SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?")
"""Azure, "Naming rules and restrictions", routeTables and routes."""
_LOCATION = re.compile(r"[a-z0-9]{1,40}")


class RouteError(ActionableError):
    """There is no such route table."""


class Node(t.NamedTuple):
    """A node in Azure.

    Args:
        name: of the host.
        addresses: its own, of one family or of both.
        parts: its parts of the pod network, of one family or of both.
    """

    name: str
    addresses: Sequence[str]
    parts: Sequence[str]


class Route(t.NamedTuple):
    """One entry of a route table.

    Args:
        name: of the entry.
        prefix: whom it is about.
        next_hop: address that packets are handed to.
    """

    name: str
    prefix: str
    next_hop: str


def routes_of(nodes: Iterable[Node], most: int = ROUTES_OF_A_TABLE) -> list[Route]:
    """Return one route for every part of the pod network that a node has.

    Args:
        nodes: those in Azure.
        most: how many routes the table holds.

    Raises:
        RouteError: they do not fit, a node has no part yet, two have the same, or families do not match.
    """
    routes: list[Route] = []
    owned: list[tuple[int, int, int, str]] = []
    for node in sorted(nodes):
        if not node.parts:
            raise RouteError(f"{node.name} has no part of the pod network yet.", "Ask when it has joined.")
        hops = {ipaddress.ip_address(text).version: text for text in node.addresses}
        for text in node.parts:
            part = ipaddress.ip_network(text)
            if part.version not in hops:
                raise RouteError(
                    f"{node.name} has pods with IPv{part.version} addresses and no such address itself.",
                    "The next hop of a route is of the same family: give the node one.",
                )
            owned.append((part.version, int(part[0]), int(part[-1]), node.name))
            name = node.name if part.version == 4 else f"{node.name}-ipv6"
            routes.append(Route(name, str(part), hops[part.version]))
    for before, after in itertools.pairwise(sorted(owned)):
        if before[0] == after[0] and after[1] <= before[2]:
            raise RouteError(
                f"{before[3]} and {after[3]} have addresses of pods in common.",
                "Look: kubectl get nodes -o yaml.",
            )
    if len(routes) > most:
        raise RouteError(
            f"{len(routes)} routes are needed, and a route table holds {most}.",
            "Keep the tunnel (docs/azure-network.md); smaller parts of the pod network make no fewer routes.",
        )
    return routes


def data_of(route: Route) -> dict[str, str]:
    """Return a route to pods as an entry of ``azure_pod_routes``."""
    return {"node": route.name, "part": route.prefix, "address": route.next_hop}


def properties_of(routes: Iterable[Route]) -> dict[str, t.Any]:
    """Return the properties of a route table.

    Args:
        routes: its entries.
    """
    entries = [
        {
            "name": route.name,
            "properties": {
                "addressPrefix": route.prefix,
                "nextHopType": "VirtualAppliance",
                "nextHopIpAddress": route.next_hop,
            },
        }
        for route in routes
    ]
    # Routes that gateways learn stay: the way to the racks comes by BGP.
    return {"disableBgpRoutePropagation": False, "routes": entries}


def template(table: str, location: str, routes: Iterable[Route], tags: Mapping[str, str]) -> dict[str, t.Any]:
    """Return a template of Azure's resource manager for a route table.

    Args:
        table: its name.
        location: region, such as ``westeurope``.
        routes: its entries.
        tags: of the table.

    Raises:
        RouteError: Azure takes no such name or region.
    """
    if not _NAME.fullmatch(table):
        raise RouteError(
            f"{table!r} is no name of a route table.", "Write letters, digits, dots, hyphens, 80 at most."
        )
    if not _LOCATION.fullmatch(location):
        raise RouteError(f"{location!r} is no region of Azure.", "Write for example --location westeurope.")
    return {
        "$schema": _SCHEMA,
        "contentVersion": "1.0.0.0",
        "resources": [
            {
                "type": _KIND,
                "apiVersion": api_version(_KIND),
                "name": table,
                "location": location,
                "tags": dict(tags),
                "properties": properties_of(routes),
            }
        ],
    }
