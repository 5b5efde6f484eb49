# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of pods that nothing wraps: pools that the pod network does not fit, and routes."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import ROUTES_OF_A_TABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import addresses
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.facts import most_routes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge, Path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    CONTROL_PLANE,
    NODES,
    Network,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import (
    CNI,
    EXISTING,
    MACHINES,
    POD_ROUTES,
    POOLS,
    ROUTED,
    ROUTING,
    routes_pods,
)


def pools(given: Given) -> Iterator[Fault]:
    """A pool's pods are routed where the pod network routes, and wrapped where it wraps."""
    routed, cni = routes_pods(given.values), given.values[CNI]
    for index, entry in enumerate(given.values[POOLS]):
        path = (POOLS, index, "pods")
        if entry["pods"] == ROUTED and not routed:
            remedy = f"write overlay, or {ROUTING}: native" if cni == "cilium" else "write overlay"
            yield path, f"is {ROUTED}, and {cni} wraps whatever pods send to other hosts", remedy
        elif entry["pods"] != ROUTED and routed:
            message = f"is {entry['pods']}, and {ROUTING} is native: nothing wraps what its pods send"
            yield path, message, f"write {ROUTED}, or {ROUTING}: tunnel"


def count(given: Given) -> Iterator[Fault]:
    """One route for each node that there may be fits into a table."""
    estate = given.estate
    if estate is None or estate.pods is None or (most := most_routes(estate)) <= ROUTES_OF_A_TABLE:
        return
    pools = given.values[POOLS]
    largest = max(range(len(pools)), key=lambda index: int(pools[index]["most"]), default=None)
    path: Path = (MACHINES,) if largest is None else (POOLS, largest, "most")
    message = f"{most} routes are needed when all nodes are there, and a route table has {ROUTES_OF_A_TABLE}"
    yield path, message, f"write less, or {ROUTING}: tunnel"


def routes(given: Given) -> Iterator[Fault]:
    """Routes lead to machines of the estate, each to a part of the pod network that is no other's."""
    entries, estate = given.values[POD_ROUTES], given.estate
    if not entries or estate is None:
        return
    if estate.pods is None:
        wraps = f"{given.values[CNI]} wraps what pods send"
        yield (POD_ROUTES,), f"is written, and {wraps}: no route is used", "take it out"
        return
    if given.values[EXISTING]["virtual_network"]:
        message = "is written, and routes of a network that exists are its owner's"
        yield (POD_ROUTES,), message, "take it out, and hand the routes to the owner"
        return
    length = int(given.values["site_node_cidr_mask"])
    networks = [estate.subnets[what].network for what in ("control", "nodes")]
    owners: dict[str, str] = {}
    for index, entry in enumerate(entries):
        part, address = Network(entry["part"]), ipaddress.IPv4Address(entry["address"])
        if not part.subnet_of(estate.pods) or part.prefixlen != length:
            message = f"{part} is no node's part of site_pod_cidr ({estate.pods}, a /{length} each)"
            yield (POD_ROUTES, index, "part"), message, "ask the cluster: ironspan net routes"
        around = next((network for network in networks if address in network), None)
        whose = {machine.name: machine.address for machine in estate.machines}
        known = whose.get(entry["node"]) or given.hosts.get(entry["node"], ("", ()))[0]
        if not around:
            message = f"{address} is in no subnet of machines ({', '.join(map(str, networks))})"
            yield (POD_ROUTES, index, "address"), message, "take the entry out; racks are reached otherwise"
        elif known and known != entry["address"]:
            message = f"{address} is not that of {entry['node']}, {known}"
            yield (POD_ROUTES, index, "address"), message, "ask the cluster: ironspan net routes"
        elif not addresses.usable(around, address) or (estate.api and entry["address"] == estate.api.address):
            message = f"{address} is no machine's: Azure or the load balancer has it"
            yield (POD_ROUTES, index, "address"), message, "ask the cluster: ironspan net routes"
        for key in ("node", "part", "address"):
            if (other := owners.setdefault(f"{key} {entry[key]}", entry["node"])) != entry["node"]:
                message = f"{entry[key]} is that of {other} too"
                yield (POD_ROUTES, index, key), message, "ask the cluster: ironspan net routes"
        if sum(one["node"] == entry["node"] for one in entries[:index]):
            yield (POD_ROUTES, index, "node"), f"{entry['node']} has a route already", "take one out"


def parts(given: Given) -> Iterator[Fault]:
    """The pod network has a part for every node when pools are at their largest."""
    values, estate = given.values, given.estate
    pools = [int(entry["most"]) for entry in values[POOLS]]
    try:
        pods = Network(str(values.get("site_pod_cidr")))
    except ValueError:
        return  # It has been named as none.
    room = 2 ** max(int(values["site_node_cidr_mask"]) - pods.prefixlen, 0)
    if estate is None or not pools or next(count(given), None):
        return
    # Instances of pools are hosts of the inventory too, in the group azure.
    hosts = given.hosts.items()
    nodes = {name for name, (_address, groups) in hosts if "azure" not in groups and _joins(groups)}
    nodes |= {machine.name for machine in estate.machines if _joins(machine.groups)}
    largest = max(range(len(pools)), key=pools.__getitem__)
    wanted, planned = len(nodes) + sum(pools), int(values["site_planned_nodes"] or 0)
    if 0 < planned < wanted:
        message = f"{wanted} nodes are there when all pools are full, and site_planned_nodes is {planned}"
        yield (POOLS, largest, "most"), message, f"write less, or site_planned_nodes: {wanted}"
    elif wanted > room:
        message = f"{wanted} nodes are there when all pools are full, and site_pod_cidr ({pods}) holds {room}"
        yield (POOLS, largest, "most"), message, "write less, or a larger site_pod_cidr before day 0"


def _joins(groups: Collection[str]) -> bool:
    return bool({NODES, CONTROL_PLANE} & {*groups})


JUDGES: tuple[Judge, ...] = (pools, count, routes, parts)
