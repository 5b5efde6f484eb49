# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The estate as typed values. ``declared.py`` makes it of variables, ``template.py`` a deployment of it."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import Route
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.services import (
    Backup,
    Endpoint,
    Gateway,
    Storage,
    Vault,
)

Network = ipaddress.IPv4Network

PARTS = ("network", "data", "machines", "nodes")
"""Resource groups, in the order in which they are deployed: what outlasts machines comes before them."""
SUBNETS = ("control", "nodes", "endpoints", "gateway")
ETCD, CONTROL_PLANE, NODES = "etcd", "control_plane", "nodes"
LOCAL_NVME = "local_nvme"
DISK_SKUS: Mapping[str, str] = {"premium_v2": "PremiumV2_LRS", "ultra": "UltraSSD_LRS"}
"""Kind of a disk of etcd's own -> Azure's name; ``local_nvme`` is a disk of the machine and no resource."""


@dataclasses.dataclass(frozen=True, slots=True)
class Deny:
    """What a deployment stack keeps others from doing with its resources by hand.

    Args:
        mode: ``none``, ``denyDelete`` or ``denyWriteAndDelete``, as Azure writes it.
        principals: object ids that may all the same.
        actions: actions that all may.
    """

    mode: str = "none"
    principals: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet: which one (of SUBNETS), the name and id of the resource, and its addresses."""

    what: str
    name: str
    id: str
    network: Network


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """etcd's own disk.

    Args:
        kind: a key of DISK_SKUS.
        gib: size.
        iops: what it is paid for.
        mbps: MB/s that it is paid for.
    """

    kind: str
    gib: int
    iops: int
    mbps: int

    @property
    def sku(self) -> str:
        """Azure's name of the kind."""
        return DISK_SKUS[self.kind]


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """The operating system: an image by its id, or one of the marketplace; the other is empty."""

    id: str = ""
    publisher: str = ""
    offer: str = ""
    sku: str = ""
    version: str = ""

    @property
    def reference(self) -> dict[str, str]:
        """Return what Azure calls an image reference."""
        if self.id:
            return {"id": self.id}
        names = ("publisher", "offer", "sku", "version")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """One virtual machine.

    Args:
        name: of the machine and of the host of the inventory.
        groups: of the inventory.
        zone: availability zone, "" where the region has none.
        address: private, chosen by the address plan.
        subnet: one of SUBNETS.
        size: Azure's name of it.
        disk: etcd's own; None where there is none, or where it is one of the machine's own.
        local_disk: etcd's data lie on the machine's own NVMe disk.
        os_disk_gib: size of the disk of the operating system.
        secure_boot: boot what is signed, and nothing else.
        identity: resource id of its user-assigned identity.
        fabric: name of its set, where the machines of it share one InfiniBand; "" otherwise.
    """

    name: str
    groups: tuple[str, ...]
    zone: str
    address: str
    subnet: str
    size: str
    disk: Disk | None
    local_disk: bool
    os_disk_gib: int
    secure_boot: bool
    identity: str
    fabric: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """Nodes for bursts: a scale set with flexible orchestration.

    Args:
        name: of the pool.
        size: Azure's name of the machines' size.
        groups: of its hosts.
        zones: that it spreads over; empty where the region has none.
        count: machines that are wanted when it is made.
        most: machines that it may grow to; addresses and quota are computed from it.
        spot: take capacity that Azure may claim back after 30 s.
        gangs: jobs over several of its nodes may run there.
        routed: its interfaces pass packets of pods as they are; otherwise the pod network wraps them.
        os_disk_gib: size of the disk of the operating system.
        secure_boot: as for a machine.
        identity: resource id of the identity of all its machines.
    """

    name: str
    size: str
    groups: tuple[str, ...]
    zones: tuple[str, ...]
    count: int
    most: int
    spot: bool
    gangs: bool
    routed: bool
    os_disk_gib: int
    secure_boot: bool
    identity: str


@dataclasses.dataclass(frozen=True, slots=True)
class Outbound:
    """How hosts reach what is not private: ``none``, ``nat`` or ``firewall``.

    ``next_hop`` is the firewall's address, ``addresses`` the count of public addresses of the NAT gateway.
    """

    kind: str = "none"
    next_hop: str = ""
    addresses: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    """The API servers' load balancer: its name (an address where it has none), address, and ports."""

    host: str
    address: str
    port: int
    backend_port: int


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Who may open connections to a port: a rule of the security group of one subnet.

    ``destination`` is a network where that is not the subnet itself.
    """

    name: str
    subnet: str
    protocol: str
    port: int
    sources: tuple[str, ...]
    destination: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Estate:
    """All of it.

    Args:
        site: the site's name.
        subscription: its id.
        tenant: id of the tenant.
        region: Azure's short name.
        zones: availability zones, as this subscription numbers them.
        deployment: ``stack`` or ``plain``.
        deny: what a stack forbids.
        groups: part (one of PARTS) -> name of its resource group.
        prefix: what names begin with.
        names: what is named -> the name that the site wrote in the place of the rule's.
        tags: of everything that takes tags.
        space: addresses of the virtual network.
        virtual_network: its resource id.
        network_exists: virtual network and subnets are there already and only referenced.
        subnets: which one -> subnet.
        dns_servers: that machines ask; empty means Azure's own.
        dns_zones: private zone -> its resource id.
        dns_existing: zones that are there already.
        racks: networks of the racks.
        administrators: networks that controllers and people come from.
        rules: of security groups.
        outbound: the way out.
        pods: the pod network, where it is routed: nothing wraps packets of pods, so the virtual network
            has to know where they are; None where something does.
        pod_routes: the way to the pods of each node here.
        api: the load balancer; None without a control plane here.
        user: account of the machines' administrator.
        authorized_keys: his public keys for SSH.
        image: the machines' operating system.
        encryption_at_host: disks are encrypted on the machine's host too.
        machines: virtual machines, in the order of the data.
        pools: nodes for bursts.
        vault: keys; None without.
        backup: where backups go; None without.
        storage: accounts for weights and checkpoints.
        endpoints: private endpoints for what others made.
        gateway: the way to the racks; None without.
    """

    site: str
    subscription: str
    tenant: str
    region: str
    zones: tuple[str, ...]
    deployment: str
    deny: Deny
    groups: Mapping[str, str]
    prefix: str
    names: Mapping[str, str]
    tags: Mapping[str, str]
    space: Network
    virtual_network: str
    network_exists: bool
    subnets: Mapping[str, Subnet]
    dns_servers: tuple[str, ...]
    dns_zones: Mapping[str, str]
    dns_existing: frozenset[str]
    racks: tuple[Network, ...]
    administrators: tuple[Network, ...]
    rules: tuple[Rule, ...]
    outbound: Outbound
    pods: Network | None
    pod_routes: tuple[Route, ...]
    api: Api | None
    user: str
    authorized_keys: tuple[str, ...]
    image: Image
    encryption_at_host: bool
    machines: tuple[Machine, ...]
    pools: tuple[Pool, ...]
    vault: Vault | None
    backup: Backup | None
    storage: tuple[Storage, ...]
    endpoints: tuple[Endpoint, ...]
    gateway: Gateway | None

    @property
    def name(self) -> str:
        """Name of the deployment or stack."""
        return f"ironspan-{self.site}"

    def name_of(self, what: str) -> str:
        """Return the name of one thing, as the site wrote it or by the rule."""
        return self.names.get(what) or f"{self.prefix}-{what}"

    def in_group(self, group: str) -> list[Machine]:
        """Return the machines of a group of the inventory."""
        return [machine for machine in self.machines if group in machine.groups]
