# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the table of a host (``roles/egress``) does with what its pods send, and what the proxy lets through.

The order is that of roles/egress/templates/egress.nft.j2; tests compare both, connection by connection.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Address,
    Connection,
    Decision,
    Network,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Allowed, Egress, port_range
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Proxied
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

DNS_PORT = 53


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTable:
    """The table of one host, which holds for the pods on it.

    Args:
        egress: what the table is rendered from.
        pod_network: the network of all pods.
        node_parts: the parts of it that nodes have.
        local: the host's own addresses, that of its bridge too.
        planes: addresses of control planes, open at ``plane_port`` (TCP).
        plane_port: port of the API servers.
        proxies: addresses of forward proxies, open at ``proxy_port`` (TCP).
        proxy_port: their port.
        resolvers: addresses open at port 53, the node's cache among them.
        now: Unix time in seconds, at which entries are judged.
    """

    egress: Egress
    pod_network: Network
    node_parts: Sequence[Network] = ()
    local: frozenset[Address] = frozenset()
    planes: frozenset[Address] = frozenset()
    plane_port: int = 6443
    proxies: frozenset[Address] = frozenset()
    proxy_port: int = 3128
    resolvers: frozenset[Address] = frozenset()
    now: float = 0.0
    stage = "table of the node"
    enforced = True

    def judge(self, way: Connection) -> Decision | None:
        """Return what the table does, None where it has no say: for the host's own packets."""
        if not way.source.has_own_network:
            return None
        if isinstance(way.address, ipaddress.IPv6Address):
            return Decision(False, "drops all IPv6 of pods (ipv6)")
        is_local = way.address in self.local
        if not is_local and way.address in self.pod_network:
            if any(way.address in part for part in self.node_parts):
                return Decision(True, "pods reach each other")
            return Decision(False, "no node has this part of the pod network (unrouted)")
        return self._named(way) or self._opened(way, is_local)

    def _named(self, way: Connection) -> Decision | None:
        """Return what the chain ``names`` does: it comes before everything that opens anything."""
        speaks = way.protocol in ("TCP", "UDP")
        if speaks and way.port == DNS_PORT and way.address in self.resolvers:
            return Decision(True, "the resolver of pods (egress_resolvers, dns_node_cache)")
        if _within(way.address, self.egress.metadata):
            return Decision(False, "metadata of a cloud, which no entry opens (metadata)")
        if speaks and way.port in self.egress.resolver_ports:
            return Decision(False, "a resolver that is none of egress_resolvers (resolver)")
        return None

    def _opened(self, way: Connection, is_local: bool) -> Decision:
        if way.protocol == "TCP":
            if way.address in self.planes and way.port == self.plane_port:
                return Decision(True, "the API servers")
            if way.address in self.proxies and way.port == self.proxy_port:
                return Decision(True, "the forward proxy")
            in_nodes = is_local or _within(way.address, self.egress.node_networks)
            if in_nodes and _has_port(self.egress.node_ports, way.port):
                return Decision(True, "egress_node_ports")
        if is_local:
            return Decision(False, "its own host, but for what egress_node_ports opens (host)")
        for entry in self.egress.allowed:
            if self._is_entry(entry, way):
                where = f"{entry.destination} {entry.protocol} {','.join(entry.ports)}"
                return Decision(True, f"egress_allow: {where} ({entry.owner}: {entry.reason})")
        return Decision(False, "no entry of egress_allow opens it (outside)")

    def _is_entry(self, entry: Allowed, way: Connection) -> bool:
        return (
            self.now < entry.until
            and entry.protocol.upper() == way.protocol
            and _within(way.address, entry.networks)
            and _has_port(entry.ports, way.port)
        )


def node_table(
    site: Site, host: Host, local: Iterable[Address], parts: Sequence[Network], now: float
) -> NodeTable:
    """Return the table that a host has by the inventory.

    Args:
        site: the whole site.
        host: the host of the pod that sends.
        local: the host's own addresses.
        parts: the nodes' parts of the pod network.
        now: Unix time in seconds.
    """
    variables = host.variables
    resolvers = list(variables.get("egress_resolvers") or ())
    if variables.get("dns_node_cache"):
        resolvers.append(variables["dns_node_cache_address"])
    proxies = site.group("egress_proxy") if site.egress.proxied else []
    planes = site.group("control_plane")
    return NodeTable(
        egress=site.egress,
        pod_network=ipaddress.ip_network(site.pod_cidr),
        node_parts=tuple(parts),
        local=frozenset(local),
        planes=_addresses(each.address for each in planes),
        plane_port=int(planes[0].variables["control_plane_port"]) if planes else 6443,
        proxies=_addresses(each.address for each in proxies),
        proxy_port=proxy_port(site),
        resolvers=_addresses(resolvers),
        now=now,
    )


def proxy_port(site: Site) -> int:
    """Return the port of the site's forward proxies."""
    return next((int(host.variables["egress_proxy_port"]) for host in site.group("egress_proxy")), 3128)


def proxy_rule(entries: Iterable[Proxied], name: str, port: int, now: float) -> Decision:
    """Return what the proxy does with a connection to a name, which it resolves itself.

    Args:
        entries: what it lets through.
        name: a DNS name in lower case.
        port: TCP port.
        now: Unix time in seconds.
    """
    for entry in entries:
        domain = entry.domain
        # As squid compares: a dot in front means all below a domain, and the domain itself.
        means = name.endswith(domain) or name == domain[1:] if domain.startswith(".") else name == domain
        if means and _has_port(entry.ports, port) and now < entry.until:
            return Decision(
                True, f"egress_allow: {entry.name} {','.join(entry.ports)} ({entry.owner}: {entry.reason})"
            )
    return Decision(False, "no entry of egress_allow with `through: proxy` has this name and port")


def _addresses(texts: Iterable[str]) -> frozenset[Address]:
    return frozenset(map(ipaddress.ip_address, texts))


def _within(address: Address, networks: Iterable[str]) -> bool:
    return any(address in ipaddress.ip_network(network) for network in networks)


def _has_port(ports: Iterable[str], port: int) -> bool:
    return any(first <= port <= last for first, last in map(port_range, ports))
