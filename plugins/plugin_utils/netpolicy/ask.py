# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Answers whether one endpoint reaches another: reads the site and the cluster, and lets everybody judge."""

from __future__ import annotations

import ipaddress
import socket
import typing as t
from collections.abc import Callable, Iterable, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.state import policy_state
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.cilium_policies import CiliumPolicies
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Address,
    Connection,
    Endpoint,
    Judge,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.lookup import Lookup
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.node_table import (
    node_table,
    proxy_port,
    proxy_rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.policies import NetworkPolicies
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.questions import (
    Name,
    Pod,
    QuestionError,
    Service,
    Target,
    pod_of,
    target_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.verdict import (
    Route,
    report_of,
    route_of,
    step,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

CILIUM = "cilium"
Resolve = Callable[[str], list[Address]]


def enforcer_of(site: Site) -> str:
    """Return what enforces network policies on a site, empty where nothing does."""
    if site.cni == CILIUM:
        return CILIUM
    for host in site.hosts.values():
        if host.variables.get("egress_enabled") and host.variables.get("egress_policy_image"):
            return "kube-network-policies"
    return ""


def ask(
    site: Site, lookup: Lookup, source: str, target: str, now: float, resolve: Resolve | None = None
) -> dict[str, t.Any]:
    """Answer a question.

    Args:
        site: the whole site.
        lookup: reads its cluster.
        source: NAMESPACE/POD.
        target: see ``questions.target_of``.
        now: Unix time in seconds.
        resolve: finds the addresses of a name outside; this machine's resolver by default.

    Returns:
        The report.

    Raises:
        QuestionError: the question makes no sense, or who is meant is not there.
        ClusterError: the API does not answer.
    """
    return _Question(site, lookup, lookup.pod(pod_of(source)), now, resolve or _resolved).answer(
        source, target
    )


class _Question:
    def __init__(self, site: Site, lookup: Lookup, source: Endpoint, now: float, resolve: Resolve) -> None:
        self._site, self._lookup, self._source = site, lookup, source
        self._now, self._resolve = now, resolve
        self._enforcer = enforcer_of(site)
        self._notes: list[str] = []
        self._planes = frozenset(host.name for host in site.group("control_plane"))

    def answer(self, source: str, text: str) -> dict[str, t.Any]:
        target = target_of(text, self._site.cluster_domain)
        routes = list(self._routes(target))
        if not routes:
            self._notes.append("nobody who is ready, with an address of the pod's family, stands behind it")
        return report_of(source, text, routes, self._notes)

    def _routes(self, target: Target) -> Iterator[Route]:
        what = target.what
        families: set[int] = {4, 6}
        if isinstance(what, Name):
            yield from self._to_name(what, target.protocol, _number(target))
            return
        if not isinstance(what, Pod | Service):
            families = {what.version}
            at = self._lookup.at(what)
            if not isinstance(at, Service):
                yield self._route(at, what, target.protocol, _number(target, at))
                return
            what = at
        if isinstance(what, Service):
            for backend in self._lookup.backends(what, target.protocol, target.port):
                if backend.address.version in families:
                    yield self._route(backend.endpoint, backend.address, target.protocol, backend.port)
            return
        pod = self._lookup.pod(what)
        for address in pod.addresses:
            if self._source.address_like(address):
                yield self._route(pod, address, target.protocol, _number(target, pod))

    def _to_name(self, name: Name, protocol: str, port: int) -> Iterator[Route]:
        """Yield the ways to a name outside: to each of its addresses, and through every proxy."""
        try:
            addresses = self._resolve(name.text)
        except OSError as error:
            self._notes.append(f"this machine finds no address of {name.text}: {error.strerror or error}")
            addresses = []
        else:
            self._notes.append(f"addresses of {name.text} are those that this machine finds now")
        for address in addresses:
            if self._source.address_like(address):
                yield self._route(Endpoint(name.text, (address,)), address, protocol, port)
        if not self._site.egress.proxied or protocol != "TCP":
            return
        said = step("forward proxy", proxy_rule(self._site.egress.proxied, name.text, port, self._now))
        for host in self._site.group("egress_proxy"):
            address = ipaddress.ip_address(host.address)
            proxy = Endpoint(
                f"{name.text} through {host.name}", (address,), node=host.name, host_network=True
            )
            way = Connection(self._source, proxy, address, "TCP", proxy_port(self._site))
            yield route_of(way, self._judges(proxy), [said])

    def _route(self, endpoint: Endpoint, address: Address, protocol: str, port: int) -> Route:
        way = Connection(self._source, endpoint, address, protocol, port)
        return route_of(way, self._judges(endpoint))

    def _judges(self, destination: Endpoint) -> list[Judge]:
        """Return everybody on the way, in the order in which a packet meets them."""
        judges: list[Judge] = [self._policies("egress", self._source)]
        host = self._site.hosts.get(self._source.node)
        if host is not None and host.variables.get("egress_enabled"):
            parts = [part for each in self._lookup.node_parts.values() for part in each]
            judges.append(
                node_table(self._site, host, self._lookup.own_addresses(host.name), parts, self._now)
            )
        return [*judges, self._policies("ingress", destination)]

    def _policies(self, direction: t.Literal["ingress", "egress"], pod: Endpoint) -> Judge:
        found = self._lookup.policies(pod.namespace) if pod.has_own_network else []
        # While a cluster is being moved nothing enforces policies, and Cilium is about to.
        if self._enforcer != CILIUM and not self._site.migration_cidr:
            return NetworkPolicies(direction, found, bool(self._enforcer))
        own = self._lookup.cilium_policies(pod.namespace) if pod.has_own_network else []
        return CiliumPolicies(
            direction,
            found,
            list(self._taken(own)),
            self._planes,
            self._resolve,
            enforced=self._enforcer == CILIUM,
        )

    def _taken(self, policies: Iterable[Object]) -> Iterator[Object]:
        """Yield the policies that Cilium has not rejected, and note those that it has."""
        for policy in policies:
            said = policy_state(policy)
            if said.valid is not False:
                yield policy
                continue
            note = f"Cilium has rejected {said.name}, so it counts for nothing: {said.message}"
            if note not in self._notes:
                self._notes.append(note)


def _number(target: Target, pod: Endpoint | None = None) -> int:
    """Return the number of the target's port.

    Raises:
        QuestionError: it is a name that no container of the pod has.
    """
    if isinstance(target.port, int):
        return target.port
    named = {port.name: port.number for port in pod.ports if port.protocol == target.protocol} if pod else {}
    if target.port not in named:
        whose = pod.name if pod else str(target.what)
        there = ", ".join(sorted(named)) or "none with a name"
        raise QuestionError(
            f"{whose} has no port called {target.port}.", f"Write its number; it has {there}."
        )
    return named[target.port]


def _resolved(name: str) -> list[Address]:
    # With the dot at its end no search domain of this machine is tried.
    found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return sorted(
        {ipaddress.ip_address(each[4][0]) for each in found}, key=lambda each: (each.version, int(each))
    )
