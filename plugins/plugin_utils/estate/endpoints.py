# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Private endpoints: the address of a service inside the virtual network, and its name in a private zone."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate

_ENDPOINT = "Microsoft.Network/privateEndpoints"
ZONES = {
    "blob": "privatelink.blob.core.windows.net",
    "dfs": "privatelink.dfs.core.windows.net",
    "vault": "privatelink.vaultcore.azure.net",
    "registry": "privatelink.azurecr.io",
    "postgresqlServer": "privatelink.postgres.database.azure.com",
    "Sql": "privatelink.documents.azure.com",
}
"""Part of a service -> the private zone that its endpoints' names lie in (Azure, Private endpoint DNS)."""

_PUBLIC = {
    "blob": "blob.core.windows.net",
    "dfs": "dfs.core.windows.net",
    "vault": "vault.azure.net",
    "registry": "azurecr.io",
    "postgresqlServer": "postgres.database.azure.com",
    "Sql": "documents.azure.com",
}
"""Part of a service -> the domain of its names, which lead into the private zone (as above)."""
_PORTS = {"postgresqlServer": (5432,), "Sql": (443, "10250-10256")}
"""Ports of what is not HTTPS alone: PostgreSQL, and Cosmos DB in direct mode (Azure, Connectivity modes)."""


class Service(t.NamedTuple):
    """What is reached by a private endpoint.

    Args:
        what: the endpoint is named after.
        host: name that clients use.
        ports: that it answers at; a range is a text.
        pods: it is for pods: accounts of weights and what others made, not the vault and the backup.
    """

    what: str
    host: str
    ports: tuple[int | str, ...]
    pods: bool


def services(estate: Estate) -> list[Service]:
    """Return all that the estate has private endpoints for.

    Args:
        estate: of the site.
    """
    found: list[tuple[str, str, str, bool]] = []
    if estate.vault:
        found.append(("vault", "vault", estate.vault.name, False))
    if estate.backup:
        found.append(("backup", "blob", estate.backup.account, False))
    for one in estate.storage:
        parts = ("blob", "dfs") if one.hierarchical else ("blob",)
        found += [(one.name, part, one.account, True) for part in parts]
    found += [(one.name, one.group, one.resource.rpartition("/")[2], True) for one in estate.endpoints]
    return [
        Service(what, f"{name.lower()}.{_PUBLIC[group]}", _PORTS.get(group, (443,)), pods)
        for what, group, name, pods in found
    ]


def zone_of(group: str) -> str:
    """Return the private DNS zone of a part of a service.

    Args:
        group: as Azure calls it, such as ``blob``.
    """
    return ZONES[group]


def add_endpoint(build: Builder, what: str, resource: str, group: str) -> None:
    """Add one, and its record.

    Args:
        build: of the part with the services.
        what: the endpoint is named after.
        resource: id of what it leads to.
        group: part of the service.
    """
    estate = build.estate
    name = estate.name_of(f"endpoint-{what}")
    link = {"name": group, "properties": {"privateLinkServiceId": resource, "groupIds": [group]}}
    endpoint = build.add(
        _ENDPOINT,
        name,
        {
            "subnet": {"id": estate.subnets["endpoints"].id},
            "customNetworkInterfaceName": estate.name_of(f"nic-endpoint-{what}"),
            "privateLinkServiceConnections": [link],
        },
        depends=[resource],
    )
    zone = {"name": group, "properties": {"privateDnsZoneId": estate.dns_zones[zone_of(group)]}}
    records = {"privateDnsZoneConfigs": [zone]}
    # Records come and go with the endpoint; written by hand they would outlive it.
    build.add(f"{_ENDPOINT}/privateDnsZoneGroups", f"{name}/default", records, depends=[endpoint])


def add_others(build: Builder) -> None:
    """Add those for what somebody else made."""
    for endpoint in build.estate.endpoints:
        add_endpoint(build, endpoint.name, endpoint.resource, endpoint.group)
