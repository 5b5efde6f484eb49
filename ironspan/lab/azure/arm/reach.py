# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an estate says of its network: what load balancers pass on, where endpoints are, which names exist.

Nothing is asked and nothing is opened; `ironspan.lab.azure.plane` does what is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.rules.common import named, reference
from ironspan.lab.azure.arm.rules.compute import MACHINE
from ironspan.lab.azure.arm.state import Resource, State

_ZONE = "Microsoft.Network/privateDnsZones"
_PRIVATE = "privatelink."
#: Groups of private links whose services there are here.
_SERVED = {"blob", "vault"}


@dataclass(frozen=True)
class Probe:
    """How a load balancer finds out whether a member takes connections.

    Attributes:
        protocol: Tcp, Http or Https.
        port: Where it asks.
        path: What it asks for by HTTP.
        every_s: Seconds between two questions.
        threshold: Answers of one kind in a row that change what it thinks.
    """

    protocol: str
    port: int
    path: str
    every_s: float
    threshold: int


@dataclass(frozen=True)
class Balance:
    """A rule of a load balancer.

    Attributes:
        address: Of its front end.
        port: Of its front end.
        member_port: Where members take what is passed on.
        probe: Of the members; None where nobody asks.
        members: Their addresses.
    """

    address: str
    port: int
    member_port: int
    probe: Probe | None
    members: tuple[str, ...]


def balances(state: State) -> list[Balance]:
    """Return the rules of all load balancers that have a private address and pass on TCP."""
    return [
        found
        for balancer in state.of_type("Microsoft.Network/loadBalancers")
        for rule in named(balancer.properties.get("loadBalancingRules"))
        if (found := _balance(state, balancer, rule.get("properties", {}))) is not None
    ]


def _balance(state: State, balancer: Resource, rule: dict[str, Any]) -> Balance | None:
    front = _part(balancer, "frontendIPConfigurations", reference(rule.get("frontendIPConfiguration")))
    address = str(front.get("privateIPAddress") or "")
    if not address or str(rule.get("protocol")).lower() != "tcp":
        return None
    asked = _part(balancer, "probes", reference(rule.get("probe")))
    probe = (
        Probe(
            str(asked.get("protocol", "Tcp")),
            int(asked["port"]),
            str(asked.get("requestPath") or "/"),
            float(asked.get("intervalInSeconds") or 15),
            int(asked.get("probeThreshold") or 1),
        )
        if asked
        else None
    )
    pool = reference(rule.get("backendAddressPool"))
    members = tuple(sorted(_members(state, pool)))
    return Balance(address, int(rule["frontendPort"]), int(rule["backendPort"]), probe, members)


def _part(balancer: Resource, kind: str, id: str) -> dict[str, Any]:
    """Return the properties of a part of a load balancer; empty when it has none of this id."""
    for one in named(balancer.properties.get(kind)):
        if id and ids.same(str(one.get("id", "")), id):
            found: dict[str, Any] = one.get("properties", {})
            return found
    return {}


def _members(state: State, pool: str) -> Iterator[str]:
    """Yield addresses of machines that run and whose interfaces name a pool."""
    running = {one.key for one in state.of_type(MACHINE) if one.power == "running"}
    for interface in state.of_type("Microsoft.Network/networkInterfaces"):
        if reference(interface.properties.get("virtualMachine")).lower() not in running:
            continue
        for configuration in named(interface.properties.get("ipConfigurations")):
            about = configuration.get("properties", {})
            pools = named(about.get("loadBalancerBackendAddressPools"))
            if any(ids.same(reference(one), pool) for one in pools):
                yield str(about.get("privateIPAddress"))


def endpoints(state: State) -> dict[str, frozenset[str]]:
    """Return the address of each private endpoint, with the ids, in lower case, of what it leads to.

    What has no data plane here is left out: only accounts' blobs and vaults have.
    """
    found: dict[str, frozenset[str]] = {}
    for endpoint in state.of_type("Microsoft.Network/privateEndpoints"):
        targets = set()
        for connection in named(endpoint.properties.get("privateLinkServiceConnections")):
            about = connection.get("properties", {})
            approved = (about.get("privateLinkServiceConnectionState") or {}).get("status") == "Approved"
            if approved and _SERVED & {str(one).lower() for one in about.get("groupIds") or []}:
                targets.add(str(about.get("privateLinkServiceId", "")).lower())
        for config in named(endpoint.properties.get("customDnsConfigs")) if targets else []:
            for address in config.get("ipAddresses") or []:
                found[str(address)] = found.get(str(address), frozenset()) | targets
    return found


def names(state: State) -> dict[str, str]:
    """Return name -> address, as machines of a linked network are told by private zones.

    The service's public name is an alias of the one in a zone of private links: both lead there.
    """
    linked = {
        parsed.parent.name.lower()
        for one in state.of_type(f"{_ZONE}/virtualNetworkLinks")
        if (parsed := ids.parse(one.id)) is not None and parsed.parent is not None
    }
    found = {}
    for record in state.of_type(f"{_ZONE}/A"):
        parsed = ids.parse(record.id)
        zone = parsed.parent.name.lower() if parsed is not None and parsed.parent is not None else ""
        addresses = named(record.properties.get("aRecords"))
        address = next((str(one.get("ipv4Address")) for one in addresses), "")
        if zone not in linked or not address or parsed is None:
            continue
        name = zone if parsed.name == "@" else f"{parsed.name}.{zone}"
        found[name.lower()] = address
        if zone.startswith(_PRIVATE):
            public = zone.removeprefix(_PRIVATE).replace("vaultcore.azure", "vault.azure")
            found[f"{parsed.name}.{public}".lower()] = address
    return found
