# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site as typed values: what every document is rendered from, and what checks have seen."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.runtime import Runtimes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sizes import (
    Profile,
    dns_servers,
    profile_for,
)

_SERVERS = ("etcd", "control_plane", "haproxy")


@dataclasses.dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a Kubernetes node."""

    key: str
    value: str
    effect: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Host:
    """One host.

    Args:
        name: the inventory name, which is also the Kubernetes node name.
        address: IP address that other hosts reach it at.
        ansible_host: what Ansible connects to.
        groups: all groups it is in, sorted.
        rack: name of its rack, empty when it has none.
        labels: node labels.
        taints: node taints.
        site_group: ``azure`` or ``on_prem``.
        mirror_url: base URL of the mirror it fetches from.
        kubernetes_version: version of its kubelet.
        layers: layers of its document, in order.
        variables: every known variable for this host, defaults included, in the type of its option.
    """

    name: str
    address: str
    ansible_host: str
    groups: tuple[str, ...]
    rack: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    site_group: str
    mirror_url: str
    kubernetes_version: str
    layers: tuple[str, ...]
    variables: Mapping[str, t.Any] = dataclasses.field(repr=False)

    def in_group(self, group: str) -> bool:
        """Tell whether the host is in a group."""
        return group in self.groups


CLUSTER_OBJECT = "cluster_object"
"""The kind that objects of the cluster, labels and taints have in the policy of approvals."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPolicy:
    """What the site asks of a plan before it is applied.

    Args:
        approvals: how many people must have signed it.
        allowed_signers: file of those who may, in the form of ssh-keygen(1).
        expires_hours: hours after which it must be made again.
        unapproved_kinds: kinds of resources that need no approval.
    """

    approvals: int = 0
    allowed_signers: str = ""
    expires_hours: int = 24
    unapproved_kinds: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DrainPolicy:
    """How nodes are taken out of service.

    Args:
        max_unavailable: hosts of one rack at the same time, a number or a percentage (operations/waves.py).
        timeout_seconds: how long the pods of a node have to go elsewhere.
        empty_dir_data: ``refuse`` or ``delete`` what pods keep in emptyDir volumes on disk.
    """

    max_unavailable: int | str = "10%"
    timeout_seconds: int = 600
    empty_dir_data: str = "refuse"


class Part(t.Protocol):
    """What a domain makes of its variables; the model keeps it and knows nothing of the domain."""

    DOMAIN: t.ClassVar[str]
    """Under which name templates find it."""


@dataclasses.dataclass(slots=True, eq=False)
class Site:
    """The whole site.

    ``uid`` is a random identifier kept in the PKI store; it is read when it is first asked for.
    ``cni`` is the layer that carries pods.
    ``migration_cidr`` is the network that pods are being moved to, "" where they are not.
    ``leaving`` are hosts that are being removed: the documents of the others no longer count them.
    ``egress`` is what pods may reach outside the cluster; its allow-list is read when the site turns it on.
    ``declared`` is the parts of domains by their names, None for one that the site does without; programs
    ask for them with ``part``.
    ``runtime`` is the classes of isolation that pods can ask for.
    ``planned_nodes`` is how many nodes it may grow to, 0 when nobody said.
    ``expressions`` says where values are computed, and from what.
    ``is_slice`` tells that ``hosts`` are a part of the site's only, see slices.py.
    """

    name: str
    api_endpoint: str
    api_address: str
    pod_cidr: str
    service_cidr: str
    node_cidr_mask: int
    cluster_domain: str
    kubernetes_version: str
    wan_mtu: int
    pki_store: str
    pki_key_file: str
    artifacts_index: str
    hosts: Mapping[str, Host]
    plan: PlanPolicy = PlanPolicy()
    drain: DrainPolicy = DrainPolicy()
    egress: Egress = dataclasses.field(default_factory=Egress)
    declared: Mapping[str, object] = dataclasses.field(default_factory=dict)
    runtime: Runtimes = dataclasses.field(default_factory=Runtimes)
    planned_nodes: int = 0
    cni: str = "flannel"
    migration_cidr: str = ""
    is_slice: bool = False
    leaving: frozenset[str] = frozenset()
    expressions: tuple[str, ...] = ()
    uid_source: Callable[[], str] = dataclasses.field(repr=False, default=str)
    _groups: dict[str, list[Host]] = dataclasses.field(repr=False, default_factory=dict)
    _uid: str = dataclasses.field(repr=False, default="")

    @property
    def uid(self) -> str:
        """Random identifier of this site, made once."""
        if not self._uid:
            self._uid = self.uid_source()
        return self._uid

    @property
    def variables(self) -> Mapping[str, t.Any]:
        """Variables that the whole site has one value of: those of any of its hosts."""
        return next(iter(self.hosts.values())).variables

    @property
    def zoned(self) -> bool:
        """Tell whether every node has a zone.

        A rule that spreads over zones makes the scheduler leave out the nodes without one: they get no points
        for their host either.
        """
        nodes = [*self.group("control_plane"), *self.group("nodes")]
        return all("topology.kubernetes.io/zone" in host.labels for host in nodes)

    @property
    def pod_networks(self) -> list[str]:
        """Networks that pods have addresses in."""
        return [network for network in (self.pod_cidr, self.migration_cidr) if network]

    @property
    def api_host(self) -> str:
        """Name or address part of the API endpoint."""
        return self.api_endpoint.rpartition(":")[0].strip("[]")

    @property
    def api_port(self) -> int:
        """Port of the API endpoint."""
        return int(self.api_endpoint.rpartition(":")[2])

    def api_addresses(self, host: Host) -> list[str]:
        """Return the addresses that a host has for the name of the API endpoint, the first to try first.

        A load balancer that is no host of the site may not lead a control plane to itself, as Azure's does
        not: such a host has its own address first. Where its API server does not run it is refused at once
        and goes to the others.

        Args:
            host: of the site.
        """
        if self.api_host == self.api_address:
            return []
        ours = {other.address for other in self.servers} | {host.address}
        same_port = host.variables.get("control_plane_port") == self.api_port
        if host.in_group("control_plane") and same_port and self.api_address not in ours:
            return [host.address, self.api_address]
        return [self.api_address]

    @property
    def dns_address(self) -> str:
        """Address of the cluster's DNS service: the tenth of the service CIDR, as kubeadm takes it."""
        return str(ipaddress.ip_network(self.service_cidr)[10])

    @property
    def kubernetes_service_address(self) -> str:
        """Address of the ``kubernetes`` service: the first of the service CIDR."""
        return str(ipaddress.ip_network(self.service_cidr)[1])

    @property
    def nodes_to_size_for(self) -> int:
        """Nodes that the cluster has or may grow to, whatever is more."""
        return max(self.planned_nodes, sum("node" in host.layers for host in self.hosts.values()))

    @property
    def size(self) -> Profile:
        """The size profile of the cluster."""
        return profile_for(self.nodes_to_size_for)

    def dns_servers(self, cores: int, node_cache: bool) -> int:
        """Return how many CoreDNS pods the cluster gets, see ``sizes.dns_servers``."""
        return dns_servers(self.nodes_to_size_for, cores, node_cache=node_cache)

    def part[T: Part](self, kind: type[T]) -> T | None:
        """Return what a domain declares for this site, None where the site does without it."""
        return t.cast("T | None", self.declared.get(kind.DOMAIN))

    def group(self, name: str) -> list[Host]:
        """Return the hosts of a group in inventory order, without those that leave."""
        if not self._groups:
            for host in self.hosts.values():
                for group in host.groups:
                    self._groups.setdefault(group, []).append(host)
        return [host for host in self._groups.get(name, ()) if host.name not in self.leaving]

    @property
    def events_servers(self) -> list[str]:
        """Return the URLs of the etcd that events have of their own; empty where they share the store."""
        return [
            f"https://{host.address}:{host.variables['etcd_events_client_port']}"
            for host in self.group("etcd")
            if host.variables.get("etcd_events_enabled")
        ]

    @property
    def servers(self) -> list[Host]:
        """Return the hosts that others ask for something: store, control planes, load balancers."""
        return list({host.name: host for group in _SERVERS for host in self.group(group)}.values())

    @property
    def server_names(self) -> frozenset[str]:
        """Return the names of ``servers``."""
        return frozenset(host.name for host in self.servers)
