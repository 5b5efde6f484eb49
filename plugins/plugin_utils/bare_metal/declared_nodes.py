# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From expected servers and the site's settings to what is wanted of each node in Ironic; no secrets."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import (
    Disks,
    ExpectedServer,
    Nic,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory import load_expected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

SHOWN = 20
"""Problems of the files that one message has."""
LEAST_GB = 16
"""Two roots of 3 GiB, at least 4 GiB for data, the EFI partition, the config drive, and some room."""
SMALLEST_GB = 5
"""Ironic's agent looks at no disk of less than 4 GiB."""


class Rack(t.NamedTuple):
    """The network of a rack.

    Args:
        network: with its prefix.
        first: address of the server in the lowest unit; the one in unit N has the N-1th after it.
        gateway: the way out.
        dns: name servers.
    """

    network: ipaddress.IPv4Network
    first: ipaddress.IPv4Address
    gateway: str
    dns: tuple[str, ...]

    def address(self, position: int) -> str:
        """Return the address of the server at a position, counted from 1."""
        return str(self.first + position - 1)


def expected_servers(
    file: str, mapping: str = "", names: Sequence[str] = (), refusal: type[RemoteError] = RemoteError
) -> tuple[ExpectedServer, ...]:
    """Return the servers of a file, all or those that are named, in its order.

    Args:
        file: of expected servers (docs/bare-metal-inventory.md).
        mapping: file that says what its columns mean, where it is somebody else's list.
        names: which of them; all when empty.
        refusal: the error of the caller's domain.

    Raises:
        RemoteError: the file has problems, with all of them, or has no server of a name; it is a ``refusal``.
    """
    read = load_expected([Path(file)], mapping or None)
    if read.problems:
        more = f"\n  and {len(read.problems) - SHOWN} more" if len(read.problems) > SHOWN else ""
        said = "".join(f"\n  {problem}" for problem in read.problems[:SHOWN])
        raise refusal(f"the expected servers have problems:{said}{more}", "correct them")
    known = {server.name: server for server in read.servers}
    for name in names:
        if name not in known:
            near = nearest(name, known)
            remedy = f"write {near}" if near else "write a name that stands there"
            raise refusal(f"{file} has no server {name!r}", remedy)
    return tuple(server for server in read.servers if not names or server.name in names)


def racks_of(settings: Mapping[str, t.Any]) -> dict[str, Rack]:
    """Return the networks of racks.

    Raises:
        RemoteError: one is no network, or an address does not lie in it; all problems at once.
    """
    racks: dict[str, Rack] = {}
    problems: list[str] = []
    for name, entry in settings.items():
        where = f"site_bare_metal_racks.{name}"
        try:
            network = ipaddress.IPv4Network(str(entry["network"]))
            first = ipaddress.IPv4Address(str(entry["first"]))
            gateway = ipaddress.IPv4Address(str(entry["gateway"])) if entry.get("gateway") else None
            dns = tuple(str(ipaddress.ip_address(str(one))) for one in entry.get("dns") or ())
        except KeyError as error:
            problems.append(f"{where}.{error.args[0]} is missing")
            continue
        except ValueError as error:
            problems.append(f"{where}: {error}")
            continue
        problems += [
            f"{where}: {one} does not lie in {network}"
            for one in filter(None, (first, gateway))
            if one not in network
        ]
        racks[str(name)] = Rack(network, first, str(gateway or ""), dns)
    if problems:
        raise RemoteError("; ".join(problems), "write network, first and gateway of the rack")
    return racks


def wanted_node(
    server: ExpectedServer,
    node: Mapping[str, t.Any],
    racks: Mapping[str, Rack],
    image: Mapping[str, t.Any],
    inspect: bool,
    layout: str = "plain",
) -> State:
    """Return what is wanted of a server.

    Args:
        server: as it is expected.
        node: fields that all nodes have, as Ironic's API has them; ``{bmc_address}`` in a text of
            ``driver_info`` becomes the server's own.
        racks: networks, by rack.
        image: what is written to its disk; empty where it shall only be available.
        inspect: inspect it, and compare what was measured, before it is provided.
        layout: of the image's disk, plain or ab.

    Raises:
        RemoteError: it shall get an operating system, and its rack has no network or no room, or its disk has
            none.
    """
    host: dict[str, t.Any] = {}
    if image:
        rack = racks.get(server.rack)
        if rack is None:
            raise RemoteError(
                f"{server.name} is in rack {server.rack}, of which no network is known",
                f"write site_bare_metal_racks.{server.rack}, or name servers of other racks",
            )
        if not server.nics:
            raise RemoteError(
                f"{server.name} has no port that could get its address", "write nic1_mac for it"
            )
        address = rack.address(server.position)
        if ipaddress.IPv4Address(address) not in rack.network or address == rack.gateway:
            raise RemoteError(
                f"{server.name} in {server.slot} would get {address}, which is not free in {rack.network}",
                f"correct site_bare_metal_racks.{server.rack}.first",
            )
        host = {
            "address": f"{address}/{rack.network.prefixlen}",
            "gateway": rack.gateway,
            "dns": list(rack.dns),
        }
        if layout == "ab":
            _insist_on_room(server, bool((node.get("properties") or {}).get("root_device")))
            host["layout"] = layout
    described = {
        key: value.replace("{bmc_address}", server.bmc_address) if isinstance(value, str) else value
        for key, value in (node.get("driver_info") or {}).items()
    }
    return {
        "goal": "active" if image else "available",
        "inspect": inspect,
        "node": {**node, "driver_info": described},
        "macs": sorted(nic.mac for nic in server.nics),
        "image": dict(image),
        "host": host,
        "expected": _plain(server),
    }


def _insist_on_room(server: ExpectedServer, named: bool) -> None:
    """Refuse a disk that two roots and a partition for data do not fit on.

    Args:
        server: as it is expected; one without declared disks is judged by its first start.
        named: the site says which disk gets the system. Without, Ironic takes the smallest that it can.

    Raises:
        RemoteError: no disk that gets the system is large enough.
    """
    sizes = sorted(disks.size_gb for disks in server.disks if disks.size_gb >= SMALLEST_GB)
    taken = sizes[-1 if named else 0] if sizes else 0
    if server.disks and taken < LEAST_GB:
        which = "its largest disk" if named else "the smallest disk, which Ironic takes,"
        raise RemoteError(
            f"{server.name}: {which} has {taken} GB, and two roots with data need {LEAST_GB}",
            "name a larger one in site_bare_metal_node.properties.root_device, "
            "or write site_bare_metal_layout: plain",
        )


def _plain(server: ExpectedServer) -> dict[str, t.Any]:
    """Return a server as JSON has it; where it is written is no part of what it is."""
    plain = dataclasses.asdict(server)
    del plain["origin"]
    return {**plain, "nics": list(plain["nics"]), "disks": list(plain["disks"]),
            "firmware": [list(pair) for pair in plain["firmware"]]}  # fmt: skip


def server_of(plain: Mapping[str, t.Any]) -> ExpectedServer:
    """Return a server from what a wanted state has of it."""
    return ExpectedServer(
        **{
            **plain,
            "nics": tuple(Nic(**nic) for nic in plain["nics"]),
            "disks": tuple(Disks(**disks) for disks in plain["disks"]),
            "firmware": tuple((str(component), str(version)) for component, version in plain["firmware"]),
        }
    )
