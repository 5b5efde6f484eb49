# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The address plan: subnets cut from the virtual network's space, and addresses of machines that stay."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import SUBNETS, Network

RESERVED_FIRST, RESERVED_LAST = 4, 1
"""Addresses of each subnet that Azure keeps: network, gateway, two for DNS; and broadcast."""
WIDEST, NARROWEST = 8, 22
"""Prefix lengths of a space from which four subnets can be cut."""
NARROWEST_WRITTEN = 24
"""The same where the site writes its subnets."""
LEAST_PREFIX = 29
"""Azure's least size of any subnet."""
GATEWAY_PREFIX = 27
"""Azure's least size of a gateway's subnet."""
SET = 16
"""Addresses that a set of machines has for itself: sets grow without moving those behind them."""


def cut(space: Network) -> dict[str, Network]:
    """Return the subnets of a space, where the site writes none.

    In sixteenths: control, endpoints, gateway (the first /26 of it), five that stay free, and the upper half
    for nodes.

    Args:
        space: of the virtual network, /8 to /28.
    """
    parts = list(space.subnets(prefixlen_diff=4))
    gateway = parts[2]
    first = next(gateway.subnets(new_prefix=max(gateway.prefixlen, 26)))
    return {
        "control": parts[0],
        "endpoints": parts[1],
        "gateway": first,
        "nodes": list(space.subnets(prefixlen_diff=1))[1],
    }


def subnets(space: Network, written: Mapping[str, str]) -> dict[str, Network]:
    """Return all subnets: those that are written, and the others cut from the space."""
    planned = cut(space)
    return {
        what: ipaddress.IPv4Network(written[what]) if written.get(what) else planned[what] for what in SUBNETS
    }


def room(network: Network) -> int:
    """Return how many addresses of a subnet machines can have."""
    return max(0, network.num_addresses - RESERVED_FIRST - RESERVED_LAST)


def first_of_set(network: Network, index: int) -> ipaddress.IPv4Address:
    """Return the address of the first machine of a set.

    The first sixteen addresses of a subnet are Azure's own and load balancers'.

    Args:
        network: of the subnet.
        index: of the set among those of this subnet, from 0.
    """
    return network.network_address + SET * (index + 1)


def usable(network: Network, address: ipaddress.IPv4Address) -> bool:
    """Tell whether a machine can have an address of a subnet."""
    offset = int(address) - int(network.network_address)
    return RESERVED_FIRST <= offset < network.num_addresses - RESERVED_LAST
