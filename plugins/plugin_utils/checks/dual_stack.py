# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A second address family: both networks, large enough, an address for every node, nothing that forbids it.

kubeadm's figures as in networks.py; the API server takes service networks of at most 20 bits. Packets of IPv6
have 1,280 bytes at least (RFC 8200), also inside the tunnel.
"""

from __future__ import annotations

import ipaddress

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import MOST_POD_SUBNET_BITS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.dual_stack import (
    ADDRESS,
    MASK,
    PODS,
    SERVICES,
    TUNNEL_BYTES,
)

WIDEST_SERVICE_PREFIX, NARROWEST_SERVICE_PREFIX = 108, 124
SMALLEST_PACKET = 1280
_EXAMPLES = {PODS: "fd00:10:244::/48", SERVICES: "fd00:10:96::/108"}


def check(draft: Draft) -> None:
    """Check the IPv6 half of a site, if it has one."""
    texts = {name: draft.site_value(name) for name in (PODS, SERVICES)}
    if not any(texts.values()):
        return
    for name, text in texts.items():
        if not text:
            # The line that somebody wrote, not the one that is missing.
            other = PODS if name == SERVICES else SERVICES
            draft.problems.add(
                draft.site_place(other),
                name,
                f"is empty, and {other} is not",
                f"write for example {_EXAMPLES[name]}",
            )
    networks = {
        name: found for name, text in texts.items() if text and (found := _network(draft, name, str(text)))
    }
    _check_sizes(draft, networks)
    _check_surroundings(draft)
    _check_addresses(draft, networks)


def _add(draft: Draft, name: str, message: str, remedy: str) -> None:
    draft.problems.add(draft.site_place(name), name, message, remedy)


def _network(draft: Draft, name: str, text: str) -> ipaddress.IPv6Network | None:
    remedy = f"write for example {_EXAMPLES[name]}"
    try:
        network = ipaddress.IPv6Network(text)
    except ValueError:
        _add(draft, name, f"{text!r} is no IPv6 network in CIDR notation", remedy)
        return None
    if network.is_multicast or network.is_link_local or network.is_loopback:
        _add(draft, name, f"{network} is not for hosts of a network", remedy)
        return None
    return network


def _check_sizes(draft: Draft, networks: dict[str, ipaddress.IPv6Network]) -> None:
    pods, services, mask = networks.get(PODS), networks.get(SERVICES), draft.site_value(MASK)
    if services and not WIDEST_SERVICE_PREFIX <= services.prefixlen <= NARROWEST_SERVICE_PREFIX:
        _add(
            draft,
            SERVICES,
            f"{services} is outside /{WIDEST_SERVICE_PREFIX} to /{NARROWEST_SERVICE_PREFIX} (kubeadm)",
            f"write {services.network_address}/{WIDEST_SERVICE_PREFIX}",
        )
    if pods and services and pods.overlaps(services):
        _add(draft, SERVICES, f"{services} overlaps the pod network {pods}", "write a network outside it")
    if pods is None or not isinstance(mask, int):
        return
    bits = mask - pods.prefixlen
    nodes = len(_nodes(draft))
    planned = draft.site_value("site_planned_nodes")
    nodes = max(nodes, planned if isinstance(planned, int) else 0)
    if bits > MOST_POD_SUBNET_BITS:
        message = f"{pods} is over {MOST_POD_SUBNET_BITS} bits wider than a node's /{mask} ({MASK})"
        _add(draft, PODS, message, f"write {pods.network_address}/{mask - MOST_POD_SUBNET_BITS}")
    elif bits < 0 or 2**bits < nodes:
        room = 2**bits if bits >= 0 else 0
        message = f"{pods} has room for {room} nodes with a /{mask} each ({MASK}), the site has {nodes}"
        _add(draft, PODS, message, f"write a network of /{mask - max(nodes - 1, 0).bit_length()} or larger")


def _check_surroundings(draft: Draft) -> None:
    """What does not know IPv6, or has no room for it."""
    if draft.site_value("egress_enabled"):
        message = "the hosts' tables (egress_enabled) drop all IPv6 that pods send"
        _add(draft, PODS, message, "leave IPv6 out, or egress_enabled")
    if draft.site_value("site_cni") not in (None, "flannel"):
        _add(
            draft, PODS, "only flannel is set up for two address families", "leave IPv6 out, or take flannel"
        )
    mtu = draft.site_value("site_wan_mtu")
    if isinstance(mtu, int) and mtu - TUNNEL_BYTES < SMALLEST_PACKET:
        message = f"of {mtu} bytes the tunnel leaves {mtu - TUNNEL_BYTES}, and IPv6 needs {SMALLEST_PACKET}"
        _add(draft, "site_wan_mtu", message, f"let {SMALLEST_PACKET + TUNNEL_BYTES} pass, or leave IPv6 out")


def _nodes(draft: Draft) -> dict[str, HostDraft]:
    return {host.name: host for group in ("nodes", "control_plane") for host in draft.members(group)}


def _check_addresses(draft: Draft, networks: dict[str, ipaddress.IPv6Network]) -> None:
    seen: dict[ipaddress.IPv6Address, str] = {}
    for host in _nodes(draft).values():
        text = str(host.values.get(ADDRESS) or "")
        message = _wrong(text, networks, seen, host.name)
        if message:
            draft.problems.add(
                draft.place(host, ADDRESS),
                f"hosts.{host.name}.{ADDRESS}",
                message,
                "write the IPv6 address that the other nodes reach this one at",
            )


def _wrong(
    text: str, networks: dict[str, ipaddress.IPv6Network], seen: dict[ipaddress.IPv6Address, str], host: str
) -> str:
    if not text:
        return "is empty, and the site's pods have IPv6 addresses"
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return f"{text!r} is no IPv6 address"
    if address.is_link_local or address.is_loopback or address.is_multicast or address.is_unspecified:
        return f"{address} is reached by no other host"
    other = seen.setdefault(address, host)
    if other != host:
        return f"{address} is the address of host {other} too"
    inside = (f"{address} lies in {name} ({each})" for name, each in networks.items() if address in each)
    return next(inside, "")


def check_written(draft: Draft) -> None:
    """Addresses are some, also of hosts that no pod network of IPv6 asks for them."""
    said = {problem.path for problem in draft.problems}
    seen: dict[ipaddress.IPv6Address, str] = {}
    for host in draft.hosts.values():
        path = f"hosts.{host.name}.{ADDRESS}"
        text = host.values.get(ADDRESS)
        if not isinstance(text, str) or not text or path in said:
            continue
        if message := _wrong(text, {}, seen, host.name):
            remedy = "write the IPv6 address that the other nodes reach this one at, or remove it"
            draft.problems.add(draft.place(host, ADDRESS), path, message, remedy)


CHECKS = (check, check_written)
