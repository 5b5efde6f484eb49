# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of machines, of their disks, and of pools."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import addresses
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge, Path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    CONTROL_PLANE,
    ETCD,
    LOCAL_NVME,
    NODES,
    Disk,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import MACHINES, POOLS, Values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import PREFIXES, all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_GPU, _RACKS = "gpu", "on_prem"
_OF_ONE_HOST = ("events", "ironic")
_MOST_MEMBERS = 7
"""etcd FAQ: a cluster should not have more than seven members."""
_LIMITS = {
    # Azure, Disk types: the least size, operations a second in all and for each GiB (those that even the
    # smallest disk has beside), MB/s in all, and operations for each MB/s.
    "premium_v2": (1, 80_000, 500, 3000, 1200),
    "ultra": (4, 400_000, 300, 1200, 10_000),
}
_IOPS_FOR_MBPS = 4


def _sets(given: Given) -> Iterator[tuple[int, Values, tuple[str, ...]]]:
    for index, entry in enumerate(given.values[MACHINES]):
        yield index, entry, tuple(entry["groups"]) or (entry["name"],)


def groups(given: Given) -> Iterator[Fault]:
    """Groups that there are, and an odd count of members."""
    known = [*all_layers().groups]
    machines = given.estate.machines if given.estate else ()
    by_default = {machine.name.rpartition("-")[0]: machine.size for machine in machines}
    entries = [((MACHINES, index), entry, found) for index, entry, found in _sets(given)]
    entries += [
        ((POOLS, index), entry, tuple(entry["groups"])) for index, entry in enumerate(given.values[POOLS])
    ]
    for path, entry, found in entries:
        for group in found:
            if group not in known and not group.startswith(PREFIXES):
                key = "groups" if entry["groups"] else "name"
                near = nearest(group, known)
                yield (
                    (*path, key),
                    f"there is no group {group}",
                    f"write {near}" if near else "write groups that there are",
                )
        called = entry["size"] or by_default.get(entry["name"], "")
        size = sizes().get(called)
        if _GPU in found and size is not None and not size.gpus:
            yield (
                (*path, "size"),
                f"{called} has no GPU, and its hosts are in the group gpu",
                "write a size with GPUs, such as Standard_NC40ads_H100_v5",
            )
        yield from _sides(given, path, entry, found)
        yield from _inside(path, entry, found)
    members = sum(entry["count"] for _index, entry, found in _sets(given) if ETCD in found)
    if members and members % 2 == 0:
        where = next(index for index, _entry, found in _sets(given) if ETCD in found)
        yield (
            (MACHINES, where, "count"),
            f"{members} members of etcd; an even number has no use",
            "write 3 or 5",
        )
    elif members > _MOST_MEMBERS:
        where = next(index for index, _entry, found in _sets(given) if ETCD in found)
        what = f"{members} members of etcd; every write waits for a majority of them"
        yield (MACHINES, where, "count"), what, "write 3, 5 or 7"


def _inside(path: Path, entry: Values, found: tuple[str, ...]) -> Iterator[Fault]:
    """As in the inventory: features are for hosts that have what they build on, and some are one host's."""
    key = "groups" if entry["groups"] else "name"
    declared = all_layers().groups
    for group in found:
        needed = declared[group].inside if group in declared else ()
        if path[0] == POOLS and NODES in needed:
            continue  # A pool without nodes is named as such.
        if needed and not {*needed} & {*found}:
            what = f"has {group} without {' or '.join(needed)}, which it builds on"
            yield (*path, key), what, f"add {needed[0]}, or take {group} out"
        if group in _OF_ONE_HOST and (path[0] == POOLS or entry["count"] > 1):
            what = f"{group} is one host's, and these are several"
            yield (*path, key), what, f"take {group} out, and list one host in it"


def _sides(given: Given, path: Path, entry: Values, found: tuple[str, ...]) -> Iterator[Fault]:
    """Machines are on Azure's side of the WAN, and join the cluster once."""
    key = "groups" if entry["groups"] else "name"
    racks = {
        group
        for _address, groups in given.hosts.values()
        if _RACKS in groups
        for group in groups
        if group.startswith("rack_")
    }
    for group in found:
        if group == _RACKS or group in racks:
            what = f"{group} is of the racks, on the other side of the WAN"
            yield (*path, key), what, "leave it out"
    if NODES in found and CONTROL_PLANE in found:
        what = "has nodes and control_plane, and a host joins the cluster only once"
        yield (*path, key), what, "write one of the two"


def names(given: Given) -> Iterator[Fault]:
    """Every set and every pool has a name of its own."""
    said: dict[str, str] = {}
    for kind in (MACHINES, POOLS):
        for index, entry in enumerate(given.values[kind]):
            path = f"{kind}[{index}]"
            if (other := said.setdefault(entry["name"], path)) != path:
                yield (
                    (kind, index, "name"),
                    f"{entry['name']} is the name of {other} too",
                    "write another one",
                )


def _set_of(given: Given, name: str) -> int:
    start = name.rpartition("-")[0]
    return next(index for index, entry, _groups in _sets(given) if entry["name"] == start)


def addresses_of_machines(given: Given) -> Iterator[Fault]:
    """Addresses lie in the subnet, are nobody else's, and are what the inventory says; once for each set."""
    estate = given.estate
    if estate is None:
        return
    taken = {estate.api.address: "the load balancer"} if estate.api else {}
    said = set()
    # Of two hosts with one address, the checks of the inventory say it.
    owners = {address: name for name, (address, _groups) in given.hosts.items()}
    for machine in estate.machines:
        network, address = estate.subnets[machine.subnet].network, ipaddress.IPv4Address(machine.address)
        where = _set_of(given, machine.name)
        path: Path = (MACHINES, where, "first_address")
        other = taken.setdefault(machine.address, machine.name)
        written, _groups = given.hosts.get(machine.name, ("", ()))
        if where in said:
            continue
        said.add(where)
        if address not in network or not addresses.usable(network, address):
            message = f"{machine.name} would get {address}, which is none for machines in {network}"
            yield path, message, "write an address of the subnet, or a larger subnet"
        elif other != machine.name:
            yield path, f"{machine.name} would get {address}, that of {other}", "write another first_address"
        elif written not in ("", machine.address):
            message = f"{machine.name} gets {machine.address}, and the inventory says {written}"
            yield path, message, "write the address of the first one, or correct the host"
        elif (owner := owners.get(machine.address, machine.name)) != machine.name and not written:
            message = f"{machine.name} would get {address}, which the inventory says of {owner}"
            yield path, message, "write another first_address, or a name that makes it the host's"
        else:
            said.discard(where)


def hosts(given: Given) -> Iterator[Fault]:
    """The inventory and the set agree what a machine is for: its disk and its open ports follow from it."""
    said: set[int] = set()
    for machine in given.estate.machines if given.estate else ():
        where = _set_of(given, machine.name)
        if machine.name not in given.hosts or where in said:
            continue
        _address, written = given.hosts[machine.name]
        for group in (ETCD, CONTROL_PLANE):
            if (group in written) != (group in machine.groups):
                said.add(where)
                key = "groups" if given.values[MACHINES][where]["groups"] else "name"
                what = "lists it in" if group in written else "does not list it in"
                message = (
                    f"{machine.name} is in {', '.join(machine.groups)}, and the inventory {what} {group}"
                )
                yield (MACHINES, where, key), message, f"write {group} in both places, or in none"


def zones(given: Given) -> Iterator[Fault]:
    """Zones of machines are some of the estate's."""
    known = given.values["azure_zones"] or []
    for kind in (MACHINES, POOLS):
        for index, entry in enumerate(given.values[kind]):
            for zone in entry["zones"]:
                if zone not in known:
                    yield (kind, index, "zones"), f"{zone} is none of azure_zones", f"write some of {known}"


def machine_sizes(given: Given) -> Iterator[Fault]:
    """Sizes that are known, with what is asked of them."""
    for kind in (MACHINES, POOLS):
        for index, entry in enumerate(given.values[kind]):
            name = entry["size"]
            size = sizes().get(name)
            if name and size is None:
                near = nearest(name, sizes()) or nearest(f"Standard_{name}", sizes())
                remedy = (
                    f"write {near}, or add it to estate/sizes.yml" if near else "add it to estate/sizes.yml"
                )
                yield (kind, index, "size"), f"{name} is no size that is known", remedy
            elif size is not None and entry["secure_boot"] and not size.trusted_launch:
                message = f"is true, and {name} has no Trusted Launch"
                yield (kind, index, "secure_boot"), message, "write secure_boot: false"


def disks(given: Given) -> Iterator[Fault]:
    """Disks of etcd: the size of machine that takes them, and figures that Azure sells."""
    planned = iter(given.estate.machines if given.estate else ())
    for index, entry, found in _sets(given):
        disk, path = entry["disk"], (MACHINES, index, "disk")
        made, *_others = [next(planned, None) for _number in range(entry["count"])]
        if ETCD not in found:
            if disk["gib"] or disk["iops"] or disk["mbps"] or disk["kind"] != "premium_v2":
                yield path, "is written, and the group etcd is none of its groups", "take it out"
            continue
        size = sizes().get(entry["size"] or (made.size if made else ""))
        if disk["kind"] == LOCAL_NVME:
            if size is not None and not size.nvme_gib:
                message = (
                    f"is local_nvme, and {made.size if made else 'the size'} has no NVMe disk of its own"
                )
                yield (
                    (*path, "kind"),
                    message,
                    "write a size with one, such as Standard_D4ads_v6, or premium_v2",
                )
            elif not given.values["etcd_backup_stores"]:
                message = "is local_nvme, which loses its data with the machine, and nothing is backed up"
                yield (*path, "kind"), message, "write etcd_backup_stores, or premium_v2"
            continue
        if size is not None and not size.premium:
            yield (
                (*path, "kind"),
                f"is {disk['kind']}, which the machine's size does not take",
                "write a size with an s",
            )
        if not given.values["azure_zones"]:
            message = f"is {disk['kind']}, which Azure has in availability zones only"
            yield (*path, "kind"), message, "write azure_zones, or another region"
        if made and made.disk:
            yield from _figures(path, made.disk)


def _figures(path: Path, disk: Disk) -> Iterator[Fault]:
    least, most, per_gib, base, mbps = _LIMITS[disk.kind]
    if disk.gib < least:
        yield (
            (*path, "gib"),
            f"{disk.gib} is less than the {least} of the smallest disk",
            f"write {least} or more",
        )
    allowed = min(most, max(base, per_gib * disk.gib))
    if disk.iops > allowed:
        message = f"{disk.iops} is more than the {allowed} that {disk.gib} GiB of {disk.kind} may have"
        yield (*path, "iops"), message, "write less, or a larger disk"
    if disk.mbps > mbps or disk.mbps * _IOPS_FOR_MBPS > disk.iops:
        most_mbps = min(mbps, disk.iops // _IOPS_FOR_MBPS)
        message = f"{disk.mbps} is more than the {most_mbps} that {disk.iops} operations a second may have"
        yield (*path, "mbps"), message, "write less, or more iops"


def fabrics(given: Given) -> Iterator[Fault]:
    """Machines that jobs run over together have InfiniBand, are workers, and are in no zone."""
    for index, entry, found in _sets(given):
        if not entry["gangs"]:
            continue
        path, size = (MACHINES, index, "gangs"), sizes().get(entry["size"])
        if NODES not in found:
            yield path, "is true, and its hosts are not in the group nodes", "write it for workers only"
        elif not entry["size"] or (size is not None and not size.infiniband):
            called = entry["size"] or "the size that is taken by default"
            yield path, f"is true, and {called} has no InfiniBand", "write a size with one, or gangs: false"
        elif entry["zones"]:
            message = "is written, and machines of one InfiniBand are in an availability set"
            yield (MACHINES, index, "zones"), message, "take it out"


def pools(given: Given) -> Iterator[Fault]:
    """Pools are of workers; a scale set of the flexible kind has no fabric for jobs over several nodes."""
    for index, entry in enumerate(given.values[POOLS]):
        path = (POOLS, index)
        if entry["count"] > entry["most"]:
            yield (
                (*path, "count"),
                f"{entry['count']} is more than most, {entry['most']}",
                "write less, or a higher most",
            )
        if entry["gangs"]:
            message = "is true, and Azure gives flexible scale sets no InfiniBand"
            yield (*path, "gangs"), message, "write the machines into azure_machines, with gangs: true there"
        for group in (ETCD, CONTROL_PLANE):
            if group in entry["groups"]:
                yield (
                    (*path, "groups"),
                    f"a pool's hosts come and go, and {group} must not",
                    "list them in azure_machines",
                )
        if NODES not in entry["groups"]:
            yield (*path, "groups"), "lacks nodes, and a pool is of workers", "add nodes"


FIRST: tuple[Judge, ...] = (groups, names)
JUDGES: tuple[Judge, ...] = (addresses_of_machines, hosts, zones, machine_sizes, disks, fabrics, pools)
