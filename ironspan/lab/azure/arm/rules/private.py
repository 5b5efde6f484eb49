# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Private endpoints and private DNS zones."""

from __future__ import annotations

from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.rules.addresses import place
from ironspan.lab.azure.arm.rules.common import Rules, Write, check_name, guid, named, reference
from ironspan.lab.azure.arm.state import Resource, State

_ZONE = "Microsoft.Network/privateDnsZones"
#: Group of a private link -> the end of the names that lead to it.
_SUFFIXES = {
    "blob": "blob.core.windows.net", "dfs": "dfs.core.windows.net", "vault": "vault.azure.net",
    "registry": "azurecr.io", "postgresqlserver": "postgres.database.azure.com", "sql": "documents.azure.com",
}  # fmt: skip


def _connections(properties: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *named(properties.get("privateLinkServiceConnections")),
        *named(properties.get("manualPrivateLinkServiceConnections")),
    ]


def _endpoint_check(write: Write) -> None:
    configuration = {"properties": {"subnet": write.properties.get("subnet")}}
    static = [one.get("properties", {}) for one in named(write.properties.get("ipConfigurations"))]
    old = write.kept("properties", "customDnsConfigs") or [{}]
    if static:
        configuration["properties"] |= {
            "privateIPAddress": static[0].get("privateIPAddress"), "privateIPAllocationMethod": "Static",
        }  # fmt: skip
    elif old[0].get("ipAddresses"):
        configuration["properties"]["privateIPAddress"] = old[0]["ipAddresses"][0]
    place(write.state, configuration, _interface_id(write.id))
    write.properties["_address"] = configuration["properties"].get("privateIPAddress")


def _interface_id(endpoint: ResourceId) -> str:
    return f"{endpoint.scope}/providers/Microsoft.Network/networkInterfaces/{endpoint.name}.nic"


def _endpoint_complete(write: Write) -> None:
    address = write.properties.pop("_address", None)
    write.default(manualPrivateLinkServiceConnections=[], ipVersionType="IPv4", ipConfigurations=[])
    write.default(customNetworkInterfaceName="", privateLinkServiceConnections=[])
    write.properties["networkInterfaces"] = [{"id": _interface_id(write.id)}]
    configs = []
    for connection in _connections(write.properties):
        connection["id"] = f"{write.id.text}/privateLinkServiceConnections/{connection.get('name')}"
        properties = connection.setdefault("properties", {})
        properties["provisioningState"] = "Succeeded"
        properties.setdefault(
            "privateLinkServiceConnectionState",
            {"status": "Approved", "description": "Auto-Approved", "actionsRequired": "None"},
        )
        target = ids.parse(str(properties.get("privateLinkServiceId", "")))
        for group in properties.get("groupIds") or []:
            suffix = _SUFFIXES.get(str(group).lower(), "lab.internal")
            name = f"{target.name if target else write.id.name}.{suffix}".lower()
            configs.append({"fqdn": name, "ipAddresses": [address]})
    write.properties["customDnsConfigs"] = configs


def _endpoint_done(state: State, resource: Resource) -> None:
    """Make the endpoint's interface, which nobody asked for and which keeps the address taken."""
    id = reference(resource.properties["networkInterfaces"][0])
    configs = resource.properties.get("customDnsConfigs") or []
    own = ids.parse(id)
    if own is None or not configs:
        return
    state.resources[id.lower()] = Resource(
        {
            "id": id, "name": own.name, "type": "Microsoft.Network/networkInterfaces",
            "location": resource.document.get("location"),
            "properties": {
                "provisioningState": "Succeeded",
                "privateEndpoint": {"id": resource.id},
                "ipConfigurations": [
                    {
                        "name": "privateEndpointIpConfig",
                        "id": f"{id}/ipConfigurations/privateEndpointIpConfig",
                        "properties": {
                            "subnet": resource.properties.get("subnet"),
                            "privateIPAddress": configs[0]["ipAddresses"][0],
                            "privateIPAllocationMethod": "Dynamic",
                        },
                    }
                ],
            },
        },
        created=state.now(),
    )  # fmt: skip


def _endpoint_deleted(state: State, resource: Resource) -> None:
    for one in named(resource.properties.get("networkInterfaces")):
        state.resources.pop(reference(one).lower(), None)


def _group_done(state: State, resource: Resource) -> None:
    """Write the records of the endpoint into the zones."""
    parsed = ids.parse(resource.id)
    endpoint = state.find(parsed.parent.text) if parsed is not None and parsed.parent is not None else None
    for config in named(resource.properties.get("privateDnsZoneConfigs")):
        zone = state.find(str(config.get("properties", {}).get("privateDnsZoneId", "")))
        if endpoint is None or zone is None:
            continue
        sets = []
        for entry in endpoint.properties.get("customDnsConfigs") or []:
            plain = str(zone.document["name"]).removeprefix("privatelink.").replace("vaultcore", "vault")
            if not entry["fqdn"].endswith(plain):
                continue
            name = entry["fqdn"].removesuffix("." + plain)
            record = f"{zone.id}/A/{name}"
            state.resources[record.lower()] = Resource(
                {
                    "id": record, "name": name, "type": f"{_ZONE}/A",
                    "properties": {
                        "ttl": 10, "fqdn": f"{name}.{zone.document['name']}.", "isAutoRegistered": False,
                        "aRecords": [{"ipv4Address": one} for one in entry["ipAddresses"]],
                    },
                },
                created=state.now(),
            )  # fmt: skip
            sets.append(
                {
                    "recordType": "A", "recordSetName": name, "ttl": 10, "ipAddresses": entry["ipAddresses"],
                    "fqdn": f"{name}.{zone.document['name']}", "provisioningState": "Succeeded",
                }
            )  # fmt: skip
        config["properties"]["recordSets"] = sets


def _group_deleted(state: State, resource: Resource) -> None:
    for config in named(resource.properties.get("privateDnsZoneConfigs")):
        zone = str(config.get("properties", {}).get("privateDnsZoneId", ""))
        for one in config.get("properties", {}).get("recordSets") or []:
            state.resources.pop(f"{zone}/A/{one['recordSetName']}".lower(), None)


def _zone_preflight(write: Write) -> None:
    check_name(
        write, r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)+", "InvalidDomainName"
    )


def _zone_complete(write: Write) -> None:
    write.keep(internalId=guid())
    write.default(maxNumberOfRecordSets=25000, maxNumberOfVirtualNetworkLinks=1000)
    write.default(maxNumberOfVirtualNetworkLinksWithRegistration=100)
    write.document.setdefault("etag", "lab")


def _zone_deletable(state: State, resource: Resource) -> None:
    nested = [one for one in state.inside(resource.id) if one.type.lower().endswith("/virtualnetworklinks")]
    if nested:
        raise ArmError(
            409,
            "CannotDeleteResource",
            f"Can not delete resource before nested resources are deleted: {nested[0].id}.",
        )


def _link_complete(write: Write) -> None:
    write.default(registrationEnabled=False, resolutionPolicy="Default")
    write.properties["virtualNetworkLinkState"] = "Completed"


def _record_complete(write: Write) -> None:
    zone = write.id.parent.name if write.id.parent is not None else ""
    name = "" if write.id.name == "@" else f"{write.id.name}."
    write.default(ttl=3600)
    write.properties["fqdn"] = f"{name}{zone}."
    write.properties["isAutoRegistered"] = False


RULES = {
    "Microsoft.Network/privateEndpoints": Rules(
        check=_endpoint_check, complete=_endpoint_complete, done=_endpoint_done, deleted=_endpoint_deleted
    ),
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": Rules(
        done=_group_done, deleted=_group_deleted
    ),
    _ZONE: Rules(_zone_preflight, complete=_zone_complete, deletable=_zone_deletable),
    f"{_ZONE}/virtualNetworkLinks": Rules(complete=_link_complete),
    f"{_ZONE}/A": Rules(complete=_record_complete),
}
