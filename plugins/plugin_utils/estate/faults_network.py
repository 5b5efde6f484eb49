# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of addresses and of the ways out of the virtual network."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import addresses
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.facts import address_needs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import SUBNETS, Network
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import EXISTING, SPACE

_PRIVATE = tuple(map(Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
_RACKS, _ADMINISTRATORS = "azure_rack_networks", "azure_administrator_networks"
_LISTS = (_RACKS, _ADMINISTRATORS)
_ELSEWHERE = {"site_pod_cidr": "pods", "site_cni_migration_cidr": "pods", "site_service_cidr": "services"}
_RESERVED_ASNS = {8074, 8075, 12076, 23456, *range(65517, 65521)}
"""Azure, About BGP with VPN Gateway: numbers that it keeps."""


def _network(text: object) -> Network | None:
    try:
        return Network(str(text)) if text else None
    except ValueError:
        return None


def _is_private(network: Network) -> bool:
    return any(network.subnet_of(one) for one in _PRIVATE)


def space(given: Given) -> Iterator[Fault]:
    """A private space that is large enough to cut, and that nobody else has."""
    network = _network(given.values[SPACE])
    if network is None:
        return
    written = given.values["azure_subnets"]
    whole = all(written[what] for what in SUBNETS)
    narrowest = addresses.NARROWEST_WRITTEN if whole else addresses.NARROWEST
    if not addresses.WIDEST <= network.prefixlen <= narrowest:
        message = f"{network} is outside /{addresses.WIDEST} to /{narrowest}"
        less = "" if whole else f", or all of azure_subnets and up to /{addresses.NARROWEST_WRITTEN}"
        yield (SPACE,), message, f"write for example 10.20.0.0/20{less}"
    if not _is_private(network):
        yield (
            (SPACE,),
            f"{network} is not a private network (RFC 1918, RFC 6598)",
            "write for example 10.20.0.0/20",
        )
    yield from _overlaps(given, (SPACE,), network)
    for index, text in enumerate(given.values[_RACKS]):
        other = _network(text)
        if other and _is_private(other) and other.overlaps(network):
            yield (
                (_RACKS, index),
                f"{other} overlaps {SPACE} ({network})",
                "write another network for one of them",
            )


def _overlaps(given: Given, path: tuple[str | int, ...], network: Network) -> Iterator[Fault]:
    for variable, whose in _ELSEWHERE.items():
        other = _network(given.values.get(variable))
        if other and other.overlaps(network):
            yield (
                path,
                f"{network} overlaps the network of {whose}, {variable} ({other})",
                "write another network",
            )


def others(given: Given) -> Iterator[Fault]:
    """Networks of racks and administrators are private ones: nothing is opened to the internet."""
    for name in _LISTS:
        before: list[Network] = []
        for index, text in enumerate(given.values[name]):
            network = _network(text)
            if network and _is_private(network) and (twice := next(filter(network.overlaps, before), None)):
                yield (
                    (name, index),
                    f"{network} overlaps {twice}, which is there too",
                    "write each network once",
                )
            before += [network] if network else []
            if network and not _is_private(network):
                yield (
                    (name, index),
                    f"{network} is public, and nothing is opened to the internet",
                    "write private networks",
                )
            elif network and name == _RACKS:
                yield from _overlaps(given, (name, index), network)


def resolvers(given: Given) -> Iterator[Fault]:
    """Machines ask resolvers that are outside of the cluster's own networks."""
    for index, text in enumerate(given.values["azure_dns_servers"] or ()):
        address = _address(str(text))
        for variable in ("site_pod_cidr", "site_service_cidr"):
            network = _network(given.values.get(variable))
            if address and network and address in network:
                message = f"{address} lies in {variable} ({network}), where no machine asks"
                yield ("azure_dns_servers", index), message, "write that of a resolver outside the cluster"


def rack_hosts(given: Given) -> Iterator[Fault]:
    """Hosts of the racks are let through the security groups."""
    racks = [one for one in map(_network, given.values[_RACKS]) if one]
    for name, (address, groups) in given.hosts.items():
        if "on_prem" not in groups or "azure" in groups or given.estate is None:
            continue
        found = _address(address)
        if found and not any(found in network for network in racks):
            message = f"host {name} ({address}) is in none of them, and security groups would keep it out"
            yield (_RACKS,), message, "write the network that it is in too"


def _address(text: str) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        return None


def subnets(given: Given) -> Iterator[Fault]:
    """Subnets lie in the space, apart from each other, and have room for all that is to be in them."""
    if given.estate is None:
        return
    written, found = given.values["azure_subnets"], given.estate.subnets

    def path(what: str) -> tuple[str, ...]:
        return ("azure_subnets", what) if written[what] else (SPACE,)

    for what in SUBNETS:
        network = found[what].network
        if not network.subnet_of(given.estate.space):
            yield path(what), f"{network} is not in {SPACE} ({given.estate.space})", "write a part of it"
        if given.estate.network_exists and not written[what] and (what != "gateway" or given.estate.gateway):
            yield (
                ("azure_subnets", what),
                "is not written, and the network exists",
                "write the subnet's addresses",
            )
    for one, other in itertools.combinations(SUBNETS, 2):
        if found[one].network.overlaps(found[other].network):
            blamed = other if written[other] else one
            message = f"{found[other].network} ({other}) overlaps {found[one].network} ({one})"
            yield path(blamed), message, "write subnets that lie apart"
    for what, count in address_needs(given.estate).items():
        network = found[what].network
        if count > (room := addresses.room(network)):
            yield (
                path(what),
                f"{network} has {room} addresses, and {what} needs {count}",
                "write a larger network",
            )
    gateway = found["gateway"].network
    if given.estate.gateway and gateway.prefixlen > addresses.GATEWAY_PREFIX:
        message = f"{gateway} is smaller than the /{addresses.GATEWAY_PREFIX} that a gateway needs"
        yield path("gateway"), message, f"write a /{addresses.GATEWAY_PREFIX} or larger"


def api(given: Given) -> Iterator[Fault]:
    """The load balancer's address is one of the control planes' subnet, and its port is the API servers'."""
    estate = given.estate
    if estate is None or estate.api is None:
        return
    if estate.api.port != estate.api.backend_port:
        # By the name of the endpoint a control plane asks itself, which it cannot do through the balancer.
        message = f"port {estate.api.port} is not that of the API servers ({estate.api.backend_port})"
        yield ("site_api_endpoint",), message, f"write {estate.api.host}:{estate.api.backend_port}"
    found, network = _address(estate.api.address), estate.subnets["control"].network
    if found is None or found not in network or not addresses.usable(network, found):
        message = f"{estate.api.address} is no address of a load balancer in {network} (subnet control)"
        first = network.network_address + addresses.RESERVED_FIRST
        yield ("site_api_address",), message, f"write one of it, for example {first}"


def outbound(given: Given) -> Iterator[Fault]:
    """A firewall has an address, and what exists has ways out of its own."""
    entry = given.values["azure_outbound"]
    kind, hop = entry["kind"], entry["next_hop"]
    if kind == "firewall" and not hop:
        yield (
            ("azure_outbound", "kind"),
            "is firewall, and next_hop is not written",
            "write its private address",
        )
    if kind != "firewall" and hop:
        yield (
            ("azure_outbound", "next_hop"),
            f"is written, and kind is {kind}",
            "write kind: firewall, or take it out",
        )
    if kind != "nat" and entry["addresses"] != 1:
        remedy = "write kind: nat, or take it out"
        yield ("azure_outbound", "addresses"), f"is {entry['addresses']}, and kind is {kind}", remedy
    found = _address(hop)
    if found and not found.is_private:
        yield ("azure_outbound", "next_hop"), f"{hop} is a public address", "write the firewall's private one"
    if kind != "none" and given.values[EXISTING]["virtual_network"]:
        message = f"is {kind}, and routes of a network that exists are its owner's"
        yield ("azure_outbound", "kind"), message, "write none"


def gateway(given: Given) -> Iterator[Fault]:
    """A VPN has routers, a connection a circuit, and BGP numbers that Azure takes."""
    entry = given.values["azure_gateway"]
    kind, peers, name = entry["kind"], entry["peers"], "azure_gateway"
    if kind == "vpn" and not peers:
        yield (name, "kind"), "is vpn, and no router is written", "write peers"
    if kind != "vpn" and peers:
        yield (name, "peers"), f"is written, and kind is {kind}", "write kind: vpn, or take them out"
    if kind == "express_route" and not entry["circuit"]:
        yield (
            (name, "kind"),
            "is express_route, and circuit is not written",
            "write the circuit's resource id",
        )
    if entry["circuit"] and "/expressRouteCircuits/" not in entry["circuit"]:
        yield (name, "circuit"), "is no circuit's id", "write .../Microsoft.Network/expressRouteCircuits/NAME"
    if kind != "none" and not given.values[_RACKS]:
        yield (_RACKS,), "is empty, and there is a gateway to the racks", "write the networks of the racks"
    size = entry["size"]
    if kind != "none" and size and not size.endswith("AZ"):
        yield (name, "size"), f"{size} is in one zone only, and Azure ends such gateways", f"write {size}AZ"
    if entry["asn"] in _RESERVED_ASNS:
        yield (
            (name, "asn"),
            f"{entry['asn']} is a number that Azure keeps for itself",
            "write another, or 65515",
        )
    for index, peer in enumerate(peers):
        yield from _peer(given, (name, "peers", index), peer["asn"], peer["address"], peer["bgp_address"])


def _peer(given: Given, path: tuple[str | int, ...], asn: int, public: str, bgp: str) -> Iterator[Fault]:
    if asn in _RESERVED_ASNS or asn in (given.values["azure_gateway"]["asn"], 65515):
        yield (*path, "asn"), f"{asn} is Azure's own number", "write the router's, for example 64512"
    found = _address(public)
    if found is None or not found.is_global:
        yield (
            (*path, "address"),
            f"{public} is no public IPv4 address",
            "write where Azure reaches the router",
        )
    inside, network = _address(bgp), _network(given.values[SPACE])
    if inside is None or (network and inside in network):
        yield (*path, "bgp_address"), f"{bgp} is no address of the racks", "write the router's own"


FIRST: tuple[Judge, ...] = (space, others)
JUDGES: tuple[Judge, ...] = (rack_hosts, resolvers, subnets, api, outbound, gateway)
