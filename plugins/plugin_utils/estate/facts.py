# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an estate costs and needs, as arithmetic: sizes, disks, addresses, and quota by Azure's counters."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import ROUTES_OF_A_TABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.addresses import room
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import Size, sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    CONTROL_PLANE,
    NODES,
    Disk,
    Estate,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.route_tables import route_tables

COMPUTE, NETWORK = "Microsoft.Compute", "Microsoft.Network"
_UNKNOWN = Size(0, 0, "")
_KINDS = {"premium_v2": "Premium SSD v2", "ultra": "Ultra"}


def needs(estate: Estate) -> dict[tuple[str, str], int]:
    """Return the quota that the whole estate takes when every pool is as large as it may be.

    Args:
        estate: the estate.

    Returns:
        (provider, name of the counter as its usages call it) -> how much.
    """
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for name, count, spot in _sized(estate):
        size = sizes().get(name, _UNKNOWN)
        found[COMPUTE, "virtualMachines"] += count
        # Spot has one counter for all families.
        found[COMPUTE, "lowPriorityCores" if spot else "cores"] += count * size.vcpus
        if not spot and size.family:
            found[COMPUTE, size.family] += count * size.vcpus
    found[COMPUTE, "virtualMachineScaleSets"] += len(estate.pools)
    found[COMPUTE, "PremiumDiskCount"] += len(estate.machines) + sum(pool.most for pool in estate.pools)
    found[NETWORK, "NetworkInterfaces"] += len(estate.machines) + sum(pool.most for pool in estate.pools)
    found[NETWORK, "LoadBalancers"] += 1 if estate.api else 0
    public = public_addresses(estate)
    found[NETWORK, "PublicIPAddresses"] += public
    found[NETWORK, "StaticPublicIPAddresses"] += public
    if not estate.network_exists:
        found[NETWORK, "VirtualNetworks"] += 1
        found[NETWORK, "NetworkSecurityGroups"] += 3
        found[NETWORK, "RouteTables"] += len(route_tables(estate))
        found[NETWORK, "NatGateways"] += 1 if estate.outbound.kind == "nat" else 0
    return {key: count for key, count in found.items() if count}


def growth(estate: Estate) -> dict[tuple[str, str], int]:
    """Return the quota that pools take beyond what they have now, when each is as large as it may be."""
    now = dataclasses.replace(
        estate, pools=tuple(dataclasses.replace(pool, most=pool.count) for pool in estate.pools)
    )
    before = needs(now)
    return {key: more for key, count in needs(estate).items() if (more := count - before.get(key, 0)) > 0}


def public_addresses(estate: Estate) -> int:
    """Return how many public addresses there are: of NAT and gateway, never of a host."""
    nat = estate.outbound.addresses if estate.outbound.kind == "nat" and not estate.network_exists else 0
    gateway = 0 if estate.gateway is None else 2 if estate.gateway.kind == "vpn" else 1
    return nat + gateway


def facts(estate: Estate) -> list[str]:
    """Return what is paid for and what is needed, one line each.

    Args:
        estate: the estate.
    """
    return [*_machines(estate), *_disks(estate), *_services(estate), *_addresses(estate), *_quota(estate)]


def _sized(estate: Estate) -> Iterator[tuple[str, int, bool]]:
    for machine in estate.machines:
        yield machine.size, 1, False
    for pool in estate.pools:
        yield pool.size, pool.most, pool.spot


def _machines(estate: Estate) -> Iterator[str]:
    for name, count in collections.Counter(machine.size for machine in estate.machines).items():
        size = sizes().get(name, _UNKNOWN)
        yield f"{count} x {name}: {count * size.vcpus} vCPUs, {count * size.gib} GiB of memory" + (
            f", {count * size.gpus} GPUs" if size.gpus else ""
        )
    for pool in estate.pools:
        size = sizes().get(pool.size, _UNKNOWN)
        gpus = f", {pool.most * size.gpus} GPUs" if size.gpus else ""
        kind = " of spot capacity" if pool.spot else ""
        yield (
            f"pool {pool.name}: {pool.count} now, at most {pool.most} x {pool.size}{kind}: "
            f"{pool.most * size.vcpus} vCPUs{gpus}"
        )


def _disks(estate: Estate) -> Iterator[str]:
    own = collections.Counter(machine.disk for machine in estate.machines if machine.disk)
    for disk, count in own.items():
        yield f"{count} x disk of etcd, {_disk(disk)}"
    if local := sum(machine.local_disk for machine in estate.machines):
        yield f"{local} x etcd on the machine's own NVMe disk, whose data are gone when it is deallocated"
    gib = sum(machine.os_disk_gib for machine in estate.machines)
    if gib:
        yield f"{len(estate.machines)} x disk of an operating system, Premium SSD, {gib} GiB together"


def _disk(disk: Disk) -> str:
    return f"{_KINDS[disk.kind]}, {disk.gib} GiB, {disk.iops} operations/s, {disk.mbps} MB/s"


def _services(estate: Estate) -> Iterator[str]:
    if estate.gateway:
        yield f"1 x gateway {estate.gateway.size}, {len(estate.gateway.peers) or 1} connections"
    if estate.outbound.kind == "nat" and not estate.network_exists:
        yield f"1 x NAT gateway with {estate.outbound.addresses} public addresses"
    if estate.api:
        yield f"1 x load balancer for the API, {estate.api.address}:{estate.api.port}"
    if estate.vault and not estate.vault.exists:
        keys = ", ".join(estate.vault.keys.values())
        yield f"1 x Key Vault {estate.vault.name} ({'HSM' if estate.vault.hsm else 'software'}): {keys}"
    if estate.backup and not estate.backup.exists:
        yield f"1 x storage account {estate.backup.account} for backups, {estate.backup.redundancy}"
    for storage in estate.storage:
        if not storage.exists:
            yield f"1 x storage account {storage.account} for {storage.name}, {storage.redundancy}"
    endpoints = endpoint_count(estate)
    if endpoints:
        yield f"{endpoints} x private endpoint"


def endpoint_count(estate: Estate) -> int:
    """Return how many private endpoints there are."""
    storage = sum(2 if one.hierarchical else 1 for one in estate.storage)
    return bool(estate.vault) + bool(estate.backup) + storage + len(estate.endpoints)


def address_needs(estate: Estate) -> dict[str, int]:
    """Return how many addresses each subnet must have for machines and endpoints, pools at their largest."""
    found = {"control": 1 if estate.api else 0, "nodes": 0, "endpoints": endpoint_count(estate)}
    for machine in estate.machines:
        found[machine.subnet] += 1
    found["nodes"] += sum(pool.most for pool in estate.pools)
    return found


def _addresses(estate: Estate) -> Iterator[str]:
    for what, count in address_needs(estate).items():
        network = estate.subnets[what].network
        yield f"subnet {what} {network}: {count} of {room(network)} addresses"
    if estate.pods and not estate.network_exists:
        now, most = len(estate.pod_routes), most_routes(estate)
        yield f"routes to pods: {now} now, {most} of {ROUTES_OF_A_TABLE} at most"


def most_routes(estate: Estate) -> int:
    """Return how many routes the largest table has when every pool is as large as it may be."""
    nodes = sum(bool({NODES, CONTROL_PLANE} & {*machine.groups}) for machine in estate.machines)
    return nodes + sum(pool.most for pool in estate.pools) + (estate.outbound.kind == "firewall")


def _quota(estate: Estate) -> Iterator[str]:
    for (provider, name), count in needs(estate).items():
        yield f"quota {provider} {name}: {count}"
