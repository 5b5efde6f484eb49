# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual networks: their subnets, security groups and routes."""

from __future__ import annotations

import ipaddress
from typing import Any

from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.addresses import prefixes
from ironspan.lab.azure.arm.rules.common import (
    Rules,
    Write,
    check_name,
    guid,
    in_use,
    named,
    users,
)
from ironspan.lab.azure.arm.state import Resource, State

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?"
_NETWORK_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}[A-Za-z0-9_]"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _cidr(text: Any, where: str) -> Network:
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        raise ArmError(
            400,
            "InvalidCIDRNotation",
            f"The address prefix {text} in resource {where} has an invalid CIDR notation.",
        ) from None


def _network_preflight(write: Write) -> None:
    check_name(write, _NETWORK_NAME)
    space = [
        _cidr(one, write.id.text)
        for one in (write.properties.get("addressSpace") or {}).get("addressPrefixes") or []
    ]
    if not space:
        raise ArmError(
            400, "AddressSpaceIsRequired", f"Virtual network {write.id.text} has no address space."
        )
    seen: list[tuple[str, Network]] = []
    for subnet in named(write.properties.get("subnets")):
        name = str(subnet.get("name"))
        for text in prefixes(subnet):
            own = _cidr(text, f"{write.id.text}/subnets/{name}")
            if not any(own.version == one.version and own.subnet_of(one) for one in space):  # type: ignore[arg-type]
                raise ArmError(
                    400,
                    "NetcfgInvalidSubnet",
                    f"Subnet '{name}' is not valid because its IP address range is outside the IP address "
                    f"range of virtual network '{write.id.name}'.",
                )
            for other, there in seen:
                if own.overlaps(there):
                    raise ArmError(
                        400,
                        "NetcfgSubnetRangesOverlap",
                        f"Subnet '{name}' is not valid because its IP address range overlaps with that of "
                        f"an existing subnet '{other}' in virtual network '{write.id.name}'.",
                    )
            seen.append((name, own))
            if own.version == 4 and own.prefixlen > 29:
                raise ArmError(400, "NetcfgInvalidSubnet", f"Subnet '{name}' is smaller than a /29.")


def _network_check(write: Write) -> None:
    before = {str(one["name"]).lower(): one for one in named(write.kept("properties", "subnets"))}
    after = {str(one.get("name")).lower(): one for one in named(write.properties.get("subnets"))}
    for name, subnet in before.items():
        id = f"{write.id.text}/subnets/{subnet['name']}"
        if name not in after:
            _refuse_used_subnet(write.state, id, "Deleted")
        elif set(prefixes(after[name])) != set(prefixes(subnet)):
            _refuse_used_subnet(write.state, id, "Updated")


def _refuse_used_subnet(state: State, id: str, verb: str) -> None:
    by = users(state, id)
    if by:
        name = id.rpartition("/")[2]
        raise ArmError(
            400,
            f"InUseSubnetCannotBe{verb}",
            f"Subnet {name} is in use by {by[0].id} and cannot be {verb.lower()}. In order to do that, "
            "delete all the resources within the subnet.",
        )


def _network_complete(write: Write) -> None:
    write.keep(resourceGuid=guid())
    write.default(
        enableDdosProtection=False, privateEndpointVNetPolicies="Disabled", virtualNetworkPeerings=[]
    )
    for subnet in named(write.properties.get("subnets")):
        complete_subnet(subnet, write.id.text)


def complete_subnet(subnet: dict[str, Any], network: str) -> None:
    """Add what Azure adds to a subnet."""
    subnet["id"] = f"{network}/subnets/{subnet.get('name')}"
    subnet["type"] = "Microsoft.Network/virtualNetworks/subnets"
    subnet.setdefault("etag", 'W/"lab"')
    properties = subnet.setdefault("properties", {})
    properties["provisioningState"] = "Succeeded"
    properties.setdefault("delegations", [])
    properties.setdefault("privateEndpointNetworkPolicies", "Disabled")
    properties.setdefault("privateLinkServiceNetworkPolicies", "Enabled")


def _network_deletable(state: State, resource: Resource) -> None:
    for subnet in named(resource.properties.get("subnets")):
        _refuse_used_subnet(state, f"{resource.id}/subnets/{subnet['name']}", "Deleted")


def _security_preflight(write: Write) -> None:
    check_name(write, _NAME)
    seen: dict[tuple[str, int], str] = {}
    for rule in named(write.properties.get("securityRules")):
        properties = rule.get("properties", {})
        priority, direction = properties.get("priority"), str(properties.get("direction", "")).lower()
        if not isinstance(priority, int) or not 100 <= priority <= 4096:
            raise ArmError(
                400,
                "SecurityRuleInvalidPriority",
                f"Security rule {rule.get('name')} has an invalid priority {priority}; it is between 100 "
                "and 4096.",
            )
        other = seen.setdefault((direction, priority), str(rule.get("name")))
        if other != str(rule.get("name")):
            raise ArmError(
                400,
                "SecurityRuleConflict",
                f"Security rule {rule.get('name')} conflicts with rule {other}. Rules cannot have the same "
                "Priority and Direction.",
            )


def _security_complete(write: Write) -> None:
    write.keep(resourceGuid=guid())
    rules = list(named(write.properties.get("securityRules")))
    for rule in rules:
        properties = rule.setdefault("properties", {})
        rule["id"] = f"{write.id.text}/securityRules/{rule.get('name')}"
        properties["provisioningState"] = "Succeeded"
        for name in (
            "sourceAddressPrefixes",
            "destinationAddressPrefixes",
            "sourcePortRanges",
            "destinationPortRanges",
        ):
            properties.setdefault(name, [])
    # Azure gives rules back in the order in which they are applied.
    rules.sort(
        key=lambda one: (str(one["properties"].get("direction")), one["properties"].get("priority", 0))
    )
    write.properties["securityRules"] = rules


def _routes_complete(write: Write) -> None:
    write.keep(resourceGuid=guid())
    write.default(disableBgpRoutePropagation=False)
    for route in named(write.properties.get("routes")):
        route["id"] = f"{write.id.text}/routes/{route.get('name')}"
        route.setdefault("properties", {})["provisioningState"] = "Succeeded"
        route["properties"].setdefault("hasBgpOverride", False)


def _named_only(write: Write) -> None:
    check_name(write, _NAME)


_TYPE = "Microsoft.Network"
RULES = {
    f"{_TYPE}/virtualNetworks": Rules(
        _network_preflight, _network_check, _network_complete, deletable=_network_deletable
    ),
    f"{_TYPE}/networkSecurityGroups": Rules(
        _security_preflight,
        complete=_security_complete,
        deletable=in_use("InUseNetworkSecurityGroupCannotBeDeleted"),
    ),
    f"{_TYPE}/routeTables": Rules(
        _named_only, complete=_routes_complete, deletable=in_use("InUseRouteTableCannotBeDeleted")
    ),
}
