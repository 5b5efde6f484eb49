# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whom each host asks: some hosts of every place, so that the work of a host does not grow with the site."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.network_checks import probes_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

VXLAN_BYTES = 50
"""Outer Ethernet is not counted: IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348)."""
EVERYBODY = 8
"""Sites up to this many hosts ask everybody."""
PEERS_OF_A_PLACE = 2
MOST_PLACES = 8


def place_of(host: Host, by_rack: bool = True) -> str:
    """Return where a host is: its side of the WAN, and its rack if that is asked for."""
    return f"{host.site_group}/{host.rack}" if host.rack and by_rack else host.site_group


def places(site: Site) -> dict[str, list[Host]]:
    """Return the hosts by place: racks, or the two sides where there are too many racks to show."""
    by_rack = len({place_of(host) for host in site.hosts.values()}) <= MOST_PLACES
    found: dict[str, list[Host]] = {}
    for host in site.hosts.values():
        found.setdefault(place_of(host, by_rack), []).append(host)
    return dict(sorted(found.items()))


def questions(site: Site, pod_networks: Mapping[str, str]) -> dict[str, Content]:
    """Return what each host is to ask.

    Args:
        site: from the inventory.
        pod_networks: part of the pod network by node, from the API; nothing where it did not answer.
    """
    asked = probes_for(site)
    by_place = places(site)
    for number, host in enumerate(site.hosts.values()):
        peers = list(_peers(site, by_place, host, number))
        asked[host.name]["paths"] = [{"name": peer.name, "address": peer.address} for peer in peers]
        # With the table of egress no host takes echoes that come through the tunnel.
        if host.name in pod_networks and not host.variables.get("egress_enabled"):
            asked[host.name]["pods"] = [
                {
                    "name": peer.name,
                    "address": tunnel_address(pod_networks[peer.name]),
                    "mtu": site.wan_mtu - VXLAN_BYTES,
                }
                for peer in peers
                if peer.name in pod_networks
            ]
        caches = [host.variables["dns_node_cache_address"]] if host.variables.get("dns_node_cache") else []
        if "dns" in asked[host.name]:
            asked[host.name]["names"] = [{**asked[host.name]["dns"], "server": cache} for cache in caches]
    return asked


def _peers(site: Site, by_place: Mapping[str, Sequence[Host]], host: Host, number: int) -> Iterable[Host]:
    if len(site.hosts) <= EVERYBODY:
        yield from (peer for peer in site.hosts.values() if peer is not host)
        return
    for members in by_place.values():
        others = [member for member in members if member is not host]
        # Another start for every host, so that all members of a place are asked by somebody.
        for step in range(min(PEERS_OF_A_PLACE, len(others))):
            yield others[(number * PEERS_OF_A_PLACE + step) % len(others)]


def tunnel_address(network: str) -> str:
    """Return the address of flannel's tunnel interface on the node with this part of the pod network."""
    return str(ipaddress.ip_network(network).network_address)
