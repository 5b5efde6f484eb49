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
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed_ipv4, unusable

_SHARED = Network("100.64.0.0/10")
_PRIVATE = tuple(map(Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
_RACKS, _ADMINISTRATORS = "azure_rack_networks", "azure_administrator_networks"
_LISTS = (_RACKS, _ADMINISTRATORS)
_ELSEWHERE = {"site_pod_cidr": "pods", "site_cni_migration_cidr": "pods", "site_service_cidr": "services"}
_MOST_DNS_SERVERS = 20
"""Azure, Networking limits: DNS servers of a virtual network."""


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
            elif network:
                yield from _inside(given, (name, index), network)


def _inside(given: Given, path: tuple[str | int, ...], network: Network) -> Iterator[Fault]:
    """A network of people lies in none of the cluster's; a wider one, such as a company's, may hold them."""
    for variable, whose in _ELSEWHERE.items():
        other = _network(given.values.get(variable))
        if other and network.subnet_of(other):
            message = f"{network} lies in the network of {whose}, {variable} ({other})"
            yield path, message, "write the one that controllers and people are in"


def resolvers(given: Given) -> Iterator[Fault]:
    """Machines ask resolvers that other hosts are, outside of the cluster's own networks."""
    servers, name = given.values["azure_dns_servers"] or (), "azure_dns_servers"
    if len(servers) > _MOST_DNS_SERVERS:
        yield (name,), f"has {len(servers)}, and Azure takes {_MOST_DNS_SERVERS}", "leave some out"
    for index, text in enumerate(servers):
        if message := _unreachable(given, str(text)):
            yield (name, index), message, "write that of a resolver outside the cluster"


def _unreachable(given: Given, text: str) -> str:
    """Return why no machine reaches an address; empty where nothing speaks against it."""
    address = parsed_ipv4(text)
    if address is None:
        return ""
    if kind := unusable(address, lab=False):
        return f"{address} is a {kind} address"
    for variable in ("site_pod_cidr", "site_service_cidr"):
        network = _network(given.values.get(variable))
        if network and address in network:
            return f"{address} lies in {variable} ({network}), where no machine asks"
    estate = given.estate
    if estate is None:
        return ""
    if estate.api and text == estate.api.address:
        return f"{address} is that of the load balancer"
    subnets = (subnet.network for subnet in estate.subnets.values() if address in subnet.network)
    kept = next((network for network in subnets if not addresses.usable(network, address)), None)
    return f"{address} is one that Azure keeps in {kept}" if kept else ""


def rack_hosts(given: Given) -> Iterator[Fault]:
    """Hosts of the racks are let through the security groups."""
    racks = [one for one in map(_network, given.values[_RACKS]) if one]
    for name, (address, groups) in given.hosts.items():
        if "on_prem" not in groups or "azure" in groups or given.estate is None:
            continue
        found = parsed_ipv4(address)
        if found and found in given.estate.space:
            continue  # checks/azure_estate.py says it of the host
        if found and not any(found in network for network in racks):
            message = f"host {name} ({address}) is in none of them, and security groups would keep it out"
            yield (_RACKS,), message, "write the network that it is in too"


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
    if not given.estate.gateway and gateway.prefixlen > addresses.LEAST_PREFIX:
        message = f"{gateway} is smaller than the /{addresses.LEAST_PREFIX} that every subnet has"
        yield path("gateway"), message, f"write a /{addresses.GATEWAY_PREFIX} or larger"
    if given.estate.gateway and gateway.prefixlen > addresses.GATEWAY_PREFIX:
        message = f"{gateway} is smaller than the /{addresses.GATEWAY_PREFIX} that a gateway needs"
        yield path("gateway"), message, f"write a /{addresses.GATEWAY_PREFIX} or larger"


def api(given: Given) -> Iterator[Fault]:
    """The load balancer's address is one of the control planes' subnet, and its port is the API servers'."""
    estate = given.estate
    if estate is None or estate.api is None:
        return
    if "." not in estate.api.host and fault_of(estate.api.host, "address"):
        message = f"{estate.api.host} would be a private DNS zone of one label, which Azure does not make"
        remedy = f"write a name with a domain, for example {estate.api.host}.example.internal"
        yield ("site_api_endpoint",), message, f"{remedy}:{estate.api.port}"
    if estate.api.port != estate.api.backend_port:
        # By the name of the endpoint a control plane asks itself, which it cannot do through the balancer.
        message = f"port {estate.api.port} is not that of the API servers ({estate.api.backend_port})"
        yield ("site_api_endpoint",), message, f"write {estate.api.host}:{estate.api.backend_port}"
    found, network = parsed_ipv4(estate.api.address), estate.subnets["control"].network
    if found is None or found not in network or not addresses.usable(network, found):
        message = f"{estate.api.address} is no address of a load balancer in {network} (subnet control)"
        first = network.network_address + addresses.RESERVED_FIRST
        yield ("site_api_address",), message, f"write one of it, for example {first}"


def _no_next_hop(given: Given, hop: str, found: ipaddress.IPv4Address) -> str:
    """Azure hands packets to a firewall that it reaches without a gateway, and that is no machine of ours."""
    if any(found in network for text in given.values[_RACKS] if (network := _network(text))):
        return f"{hop} lies in {_RACKS}, behind a gateway, and Azure reaches no next hop through one"
    machines = given.estate.machines if given.estate else ()
    name = next((one.name for one in machines if one.address == hop), "")
    return f"{hop} is the address of {name}" if name else ""


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
    path, remedy = ("azure_outbound", "next_hop"), "write the firewall's private one"
    found = parsed_ipv4(hop)
    if found and not found.is_private and found not in _SHARED:
        yield path, f"{hop} is a public address", remedy
    elif found and (message := _unreachable(given, hop) or _no_next_hop(given, hop, found)):
        yield path, message, remedy
    if kind != "none" and given.values[EXISTING]["virtual_network"]:
        message = f"is {kind}, and routes of a network that exists are its owner's"
        yield ("azure_outbound", "kind"), message, "write none"


def administrators(given: Given) -> Iterator[Fault]:
    """Somebody reaches the machines that are made in a network of ours."""
    machines = given.values["azure_machines"] or given.values["azure_pools"]
    if machines and not given.values[EXISTING]["virtual_network"] and not given.values[_ADMINISTRATORS]:
        message = "is empty, and security groups would keep everybody from the machines' SSH"
        yield (_ADMINISTRATORS,), message, "write the private network that the controller is in"


FIRST: tuple[Judge, ...] = (space, others)
JUDGES: tuple[Judge, ...] = (administrators, rack_hosts, resolvers, subnets, api, outbound)
