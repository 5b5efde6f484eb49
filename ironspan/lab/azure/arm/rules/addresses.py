# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Addresses of subnets: which are taken, which are free, which an interface may have."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.common import Write, named, reference
from ironspan.lab.azure.arm.state import State

#: How many addresses at the beginning of a subnet are Azure's.
_RESERVED = 4


def prefixes(subnet: dict[str, Any]) -> list[str]:
    """Return a subnet's prefixes."""
    properties = subnet.get("properties", {})
    one = properties.get("addressPrefix")
    return [str(one)] if one else [str(text) for text in properties.get("addressPrefixes") or []]


def addresses(state: State, subnet: str, but: str = "") -> dict[str, str]:
    """Return the addresses that are taken in a subnet, each with the id of what has it.

    Args:
        state: Everything.
        subnet: Id of the subnet.
        but: Id of a resource whose addresses do not count.
    """
    found = {}
    for one in state.resources.values():
        if ids.same(one.id, but):
            continue
        for name in ("ipConfigurations", "frontendIPConfigurations"):
            for configuration in named(one.properties.get(name)):
                properties = configuration.get("properties", {})
                address = properties.get("privateIPAddress")
                where = reference(properties.get("subnet")) or str(properties.get("_subnet", ""))
                if address and ids.same(where, subnet):
                    found[str(ipaddress.ip_address(str(address)))] = one.id
        # A private endpoint has its address before its interface is there.
        interfaces = [reference(link) for link in named(one.properties.get("networkInterfaces"))]
        own = any(ids.same(link, but) for link in interfaces)
        if not own and ids.same(reference(one.properties.get("subnet")), subnet):
            for config in named(one.properties.get("customDnsConfigs")):
                found |= {str(address): one.id for address in config.get("ipAddresses") or []}
    return found


def _usable(subnet: dict[str, Any]) -> Iterator[str]:
    """Addresses of a subnet that machines may have: neither the first four nor the last."""
    for text in prefixes(subnet):
        network = ipaddress.ip_network(text)
        for number in range(_RESERVED, network.num_addresses - 1):
            yield str(network[number])


def place(state: State, configuration: dict[str, Any], owner: str) -> None:
    """Give an ip configuration its address: the static one once it is possible, else the lowest that is free.

    Raises:
        ArmError: Not in the subnet, reserved, in use, or none is left.
    """
    properties = configuration.setdefault("properties", {})
    subnet_id = reference(properties.get("subnet"))
    if not subnet_id:
        return
    subnet = state.part(subnet_id) or {}
    taken = addresses(state, subnet_id, owner)
    static = str(properties.get("privateIPAllocationMethod", "Dynamic")).lower() == "static"
    wanted = properties.get("privateIPAddress")
    if static or (wanted and str(wanted) not in taken and str(wanted) in set(_usable(subnet))):
        _check_static(str(wanted), subnet, subnet_id, taken, owner)
    else:
        free = next((one for one in _usable(subnet) if one not in taken), None)
        if free is None:
            raise ArmError(
                400,
                "SubnetIsFull",
                f"Subnet {subnet.get('name')} with address prefix {prefixes(subnet)} is full.",
            )
        properties["privateIPAddress"] = free
    properties.setdefault("privateIPAllocationMethod", "Dynamic")


def _check_static(
    address: str, subnet: dict[str, Any], subnet_id: str, taken: dict[str, str], owner: str
) -> None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise ArmError(
            400, "InvalidIPAddressFormat", f"The IP address {address!r} of resource {owner} is not valid."
        ) from None
    networks = [ipaddress.ip_network(text) for text in prefixes(subnet)]
    inside = next((one for one in networks if parsed in one), None)
    if inside is None:
        raise ArmError(
            400,
            "PrivateIPAddressNotInSubnet",
            f"Private static IP address {address} does not belong to the range of subnet prefix "
            f"{', '.join(prefixes(subnet))}.",
        )
    if int(parsed) - int(inside.network_address) < _RESERVED or parsed == inside.broadcast_address:
        raise ArmError(
            400,
            "PrivateIPAddressInReservedRange",
            f"Private static IP address {address} falls within reserved IP range of subnet prefix {inside}.",
        )
    if str(parsed) in taken:
        raise ArmError(
            400, "PrivateIPAddressIsAllocated",
            f"IP configuration of {owner} is using the private IP address {address} which is already "
            f"allocated to resource {taken[str(parsed)]}.",
        )  # fmt: skip


def place_all(write: Write, name: str) -> None:
    """Give the ip configurations in the list `name` their addresses; dynamic ones keep what they have."""
    before = {str(one["name"]).lower(): one for one in named(write.kept("properties", name))}
    for configuration in named(write.properties.get(name)):
        properties = configuration.setdefault("properties", {})
        kept = before.get(str(configuration.get("name")).lower(), {}).get("properties", {})
        if ids.same(reference(kept.get("subnet")), reference(properties.get("subnet"))):
            properties.setdefault("privateIPAddress", kept.get("privateIPAddress"))
        place(write.state, configuration, write.id.text)
