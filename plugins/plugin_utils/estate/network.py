# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The virtual network, what may pass in it, how it is left, its names, and the API servers' load balancer."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    SUBNETS,
    Api,
    Estate,
    Network,
    Rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ports import collapsed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.route_tables import add_route_tables

BACKEND = "api"
"""Name of the load balancer's pool."""
_NET = "Microsoft.Network"
_GUARDED = tuple(what for what in SUBNETS if what != "gateway")
"""Subnets with a security group; Azure allows none for the gateway's."""
_FIRST_PRIORITY, _STEP = 100, 10
_PROBES_PRIORITY, _DENY_PRIORITY = 4000, 4096
_STANDARD = {"name": "Standard", "tier": "Regional"}
_MINUTES_IDLE = 30
"""Watches of kubelets are quiet for longer than Azure's four minutes; 30 is the most."""


def add_network(build: Builder) -> None:
    """Add the virtual network with all that belongs to it, unless it is there already."""
    estate = build.estate
    if not estate.network_exists:
        groups = {what: _security_group(build, what) for what in _GUARDED}
        routes = add_route_tables(build)
        nat = _nat(build)
        _virtual_network(build, groups, routes, nat)
    _zones(build)
    if estate.api:
        _load_balancer(build, estate.api)


def _security_group(build: Builder, what: str) -> str:
    estate = build.estate
    rules = [_rule(build, index, rule) for index, rule in enumerate(_opened(estate, what))]
    rules += [
        # Probes of load balancers come from Azure's own address and would fall to the denial.
        _any("allow-load-balancer", _PROBES_PRIORITY, "AzureLoadBalancer", "Allow"),
        # Before Azure's own rules, of which one lets in all that is routed here, racks and peers included.
        _any("deny-all", _DENY_PRIORITY, "*", "Deny"),
    ]
    return build.add(f"{_NET}/networkSecurityGroups", estate.name_of(f"nsg-{what}"), {"securityRules": rules})


def _opened(estate: Estate, what: str) -> list[Rule]:
    if what != "endpoints":
        pings = Rule("allow-ping", what, "icmp", 0, _site_networks(estate))
        between = []
        if estate.pods:
            # Hosts look after which pod may reach which; the virtual network sees no more than addresses.
            sources = collapsed([*map(Network, _site_networks(estate)), estate.pods])
            between = [Rule("allow-pods", what, "*", 0, sources, str(estate.pods))]
        return [*(rule for rule in estate.rules if rule.subnet == what), pings, *between]
    return [Rule("allow-endpoints", what, "tcp", 443, _site_networks(estate))] + [
        Rule("allow-postgresql", what, "tcp", 5432, _site_networks(estate))
        for _ in [one for one in estate.endpoints if one.group == "postgresqlServer"][:1]
    ]


def _site_networks(estate: Estate) -> tuple[str, ...]:
    own = [estate.subnets[what].network for what in ("control", "nodes")]
    return collapsed([*own, *estate.racks, *estate.administrators])


def _rule(build: Builder, index: int, rule: Rule) -> dict[str, t.Any]:
    return {
        "name": rule.name,
        "properties": {
            "priority": _FIRST_PRIORITY + _STEP * index,
            "direction": "Inbound",
            "access": "Allow",
            "protocol": rule.protocol.capitalize(),
            "sourcePortRange": "*",
            "sourceAddressPrefixes": list(rule.sources),
            "destinationAddressPrefix": rule.destination or str(build.estate.subnets[rule.subnet].network),
            "destinationPortRange": str(rule.port or "*"),
        },
    }


def _any(name: str, priority: int, source: str, access: str) -> dict[str, t.Any]:
    return {
        "name": name,
        "properties": {
            "priority": priority,
            "direction": "Inbound",
            "access": access,
            "protocol": "*",
            "sourcePortRange": "*",
            "sourceAddressPrefix": source,
            "destinationAddressPrefix": "*",
            "destinationPortRange": "*",
        },
    }


def _nat(build: Builder) -> str:
    estate = build.estate
    if estate.outbound.kind != "nat":
        return ""
    addresses = [
        build.add(
            f"{_NET}/publicIPAddresses",
            estate.name_of(f"nat-{index + 1}"),
            {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
            more={"sku": _STANDARD, **({"zones": list(estate.zones)} if estate.zones else {})},
        )
        for index in range(estate.outbound.addresses)
    ]
    return build.add(
        f"{_NET}/natGateways",
        estate.name_of("nat"),
        {"idleTimeoutInMinutes": 4, "publicIpAddresses": [{"id": one} for one in addresses]},
        depends=addresses,
        more={"sku": {"name": "Standard"}},
    )


def _virtual_network(build: Builder, groups: dict[str, str], routes: Mapping[str, str], nat: str) -> None:
    estate = build.estate
    subnets = []
    for what in SUBNETS:
        subnet = estate.subnets[what]
        properties: dict[str, t.Any] = {
            "addressPrefix": str(subnet.network),
            "defaultOutboundAccess": False,
            "privateEndpointNetworkPolicies": "Enabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
        }
        if what in groups:
            properties["networkSecurityGroup"] = {"id": groups[what]}
        if what in routes:
            properties["routeTable"] = {"id": routes[what]}
        if what in ("control", "nodes"):
            properties |= {"natGateway": {"id": nat}} if nat else {}
        subnets.append({"name": subnet.name, "properties": properties})
    build.add(
        f"{_NET}/virtualNetworks",
        estate.virtual_network.rpartition("/")[2],
        {
            "addressSpace": {"addressPrefixes": [str(estate.space)]},
            # Without it machines ask Azure, which knows the private zones.
            **({"dhcpOptions": {"dnsServers": list(estate.dns_servers)}} if estate.dns_servers else {}),
            "subnets": subnets,
        },
        depends=[*groups.values(), *dict.fromkeys(routes.values()), nat],
    )


def _zones(build: Builder) -> None:
    estate = build.estate
    for name in estate.dns_zones:
        if name in estate.dns_existing:
            continue
        zone = build.add(f"{_NET}/privateDnsZones", name, {}, location="global")
        build.add(
            f"{_NET}/privateDnsZones/virtualNetworkLinks",
            f"{name}/{estate.name_of('net')}",
            {"virtualNetwork": {"id": estate.virtual_network}, "registrationEnabled": False},
            depends=[zone, estate.virtual_network],
            location="global",
        )
        if estate.api and name == estate.api.host:
            # A zone for the one name: it hides nothing else of the domain that the name lies in.
            record = {"ttl": 300, "aRecords": [{"ipv4Address": estate.api.address}]}
            build.add(f"{_NET}/privateDnsZones/A", f"{name}/@", record, depends=[zone])


def balancer_id(estate: Estate) -> str:
    """Return the id of the load balancer."""
    return Builder(estate, "network").id_of(f"{_NET}/loadBalancers", estate.name_of("load-balancer"))


def _load_balancer(build: Builder, api: Api) -> None:
    estate, balancer = build.estate, balancer_id(build.estate)
    frontend: dict[str, t.Any] = {
        "name": BACKEND,
        "properties": {
            "subnet": {"id": estate.subnets["control"].id},
            "privateIPAllocationMethod": "Static",
            "privateIPAddress": api.address,
        },
    }
    if estate.zones:
        frontend["zones"] = list(estate.zones)
    probe = {
        "name": "readyz",
        "properties": {
            "protocol": "Https",
            "port": api.backend_port,
            "requestPath": "/readyz",
            "intervalInSeconds": 5,
            "probeThreshold": 2,
        },
    }
    rule = {
        "name": BACKEND,
        "properties": {
            "frontendIPConfiguration": {"id": f"{balancer}/frontendIPConfigurations/{BACKEND}"},
            "backendAddressPool": {"id": f"{balancer}/backendAddressPools/{BACKEND}"},
            "probe": {"id": f"{balancer}/probes/readyz"},
            "protocol": "Tcp",
            "frontendPort": api.port,
            "backendPort": api.backend_port,
            "idleTimeoutInMinutes": _MINUTES_IDLE,
            "enableTcpReset": True,
            "enableFloatingIP": False,
            "disableOutboundSnat": True,
            "loadDistribution": "Default",
        },
    }
    build.add(
        f"{_NET}/loadBalancers",
        estate.name_of("load-balancer"),
        {
            "frontendIPConfigurations": [frontend],
            # Empty: interfaces name the pool. Written in both places, the second deployment fails.
            "backendAddressPools": [{"name": BACKEND}],
            "probes": [probe],
            "loadBalancingRules": [rule],
        },
        depends=[estate.virtual_network],
        more={"sku": _STANDARD},
    )
