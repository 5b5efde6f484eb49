# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where virtual servers stand: a bridge, the addresses of servers and BMCs on it, and a port a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network

from ironspan.lab import commands, network
from ironspan.lab.errors import LabError
from ironspan.lab.layout import MIRROR_PORT, Layout

MOST = 8
"""Servers that QEMU emulates on one machine: each takes 4 GiB and computes all by itself."""
_SERVERS, _BMCS, _AGENTS = 200, 210, 220
"""What comes before the first address of servers, of BMCs, and of what the agent gets by DHCP."""


@dataclasses.dataclass(frozen=True)
class Rack:
    """A rack.

    Args:
        name: of the rack in the file of expected servers.
        bridge: device that its ports are on.
        network: of the bridge; the machine itself has its first address.
        taps: how the names of the ports begin.
        own: the bridge is the rack's alone, made and removed with it.
        gateway: the servers' way out; None for none.
        mirror: URL of the mirror on this network; "" where the rack has to serve it itself.
    """

    name: str
    bridge: str
    network: IPv4Network
    taps: str
    own: bool = False
    gateway: IPv4Address | None = None
    mirror: str = ""

    @property
    def controller(self) -> IPv4Address:
        """The machine's own address: Ironic, images, DHCP."""
        return self.network[1]

    def server(self, number: int) -> IPv4Address:
        """Return the address that a server gets when it is deployed."""
        return self.network[_SERVERS + number]

    def bmc(self, number: int) -> IPv4Address:
        """Return the address of a server's BMC."""
        return self.network[_BMCS + number]

    def tap(self, number: int) -> str:
        """Return a server's port on the bridge."""
        return f"{self.taps}{number}"

    @property
    def agents(self) -> str:
        """First and last address that the agent may get, as dnsmasq takes them."""
        return f"{self.network[_AGENTS + 1]},{self.network[_AGENTS + 2 * MOST]}"

    @property
    def links(self) -> list[str]:
        """All devices that it may have."""
        return [*map(self.tap, range(1, MOST + 1)), *([self.bridge] if self.own else [])]


ALONE = Rack("rack-1", "ironspan-metal", IPv4Network("192.168.77.0/24"), "ironspan-m", own=True)
"""The rack of `ironspan lab servers`, which belongs to no lab."""


def checked_count(count: int, least: int = 0) -> int:
    """Return a number of servers, or raise LabError."""
    if not least <= count <= MOST:
        raise LabError(f"{count} virtual servers: write a number from {least} to {MOST}")
    return count


def of(layout: Layout) -> Rack:
    """Return the rack of a lab's virtual servers, on the bridge of its rack hosts."""
    site = layout.rack_site
    mirror = f"http://{site.controller}:{MIRROR_PORT}"
    return Rack(
        "rack-b", site.bridge, site.network, f"isv{layout.index}-", gateway=site.router, mirror=mirror
    )


def ensure(rack: Rack, numbers: Sequence[int]) -> None:
    """Make what is missing of the network, for some servers; a second call changes nothing."""
    there = network.devices()
    if rack.own and rack.bridge not in there:
        commands.run(["ip", "link", "add", rack.bridge, "type", "bridge"])
    if rack.own:
        address = f"{rack.controller}/{rack.network.prefixlen}"
        commands.run(["ip", "address", "replace", address, "dev", rack.bridge])
        commands.run(["ip", "link", "set", rack.bridge, "addrgenmode", "none", "up"])
    for number in numbers:
        commands.run(["ip", "address", "replace", f"{rack.bmc(number)}/32", "dev", rack.bridge])
        if rack.tap(number) not in there:
            commands.run(["ip", "tuntap", "add", rack.tap(number), "mode", "tap"])
        commands.run(
            ["ip", "link", "set", rack.tap(number), "master", rack.bridge, "addrgenmode", "none", "up"]
        )


def remove(rack: Rack, numbers: Sequence[int]) -> None:
    """Remove the ports of some servers, and the addresses of their BMCs."""
    for number in numbers:
        network.remove_link(rack.tap(number))
        commands.attempt(["ip", "address", "delete", f"{rack.bmc(number)}/32", "dev", rack.bridge])
