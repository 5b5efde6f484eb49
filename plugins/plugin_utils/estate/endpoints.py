# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Private endpoints: the address of a service inside the virtual network, and its name in a private zone."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder

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
