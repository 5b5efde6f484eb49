# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names and addresses of one lab: pure arithmetic, nothing here touches the machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from ironspan.lab.errors import LabError

DOMAIN = "lab.internal"
API_NAME = f"api.{DOMAIN}"
API_PORT = 8443
MIRROR_PORT = 8080
#: 10.98.0.0/16 is cut into 32 networks of 256 addresses this way, so 16 labs fit beside each other.
LABS_PER_MACHINE = 16
#: Hosts are numbered from .11 up and .254 is the router.
HOSTS_PER_SITE = 99
SIZES: dict[str, tuple[int, int]] = {"tiny": (1, 1), "small": (3, 2)}
_NAME = re.compile(r"[a-z][a-z0-9]{0,11}\Z")


def state_root() -> Path:
    """The folder that holds every lab's state folder."""
    return Path(os.environ.get("IRONSPAN_LAB_ROOT", "/var/lib/ironspan-lab"))


def cache_root() -> Path:
    """The folder that holds what labs share: the base image."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ironspan" / "lab"


def check_name(name: str) -> str:
    """Return `name`, or raise LabError when it cannot name a lab.

    Cgroups are called ironspan-LAB-HOST: without a hyphen in LAB the two parts cannot be mistaken.
    """
    if not _NAME.match(name):
        raise LabError(
            f"lab name {name!r}: write 1 to 12 lower-case letters and digits, beginning with a letter"
        )
    return name


@dataclass(frozen=True)
class Site:
    """One side of the WAN: a bridge, a network and the router's foot in it."""

    key: str
    group: str
    network: IPv4Network
    bridge: str
    namespace: str
    #: Root namespace's end of the pair that joins the bridge and the router.
    router_port: str
    wan_address: IPv4Address
    wan_peer: IPv4Address

    @property
    def controller(self) -> IPv4Address:
        """Address of the machine itself on this bridge: mirror and name server."""
        return self.network[1]

    @property
    def router(self) -> IPv4Address:
        """Default gateway of the site's hosts."""
        return self.network[254]

    @property
    def endpoint(self) -> IPv4Address:
        """Private endpoint of the emulated Azure, in the Azure side's router."""
        return self.network[253]


@dataclass(frozen=True)
class LabHost:
    """One host: its name, where it stands and what the machine calls its parts."""

    name: str
    site: Site
    address: IPv4Address
    machine: str
    cgroup: str
    #: Account that administers a virtual machine of an estate, and its keys; the lab's own hosts have root.
    user: str = ""
    authorized_keys: tuple[str, ...] = ()
    #: Name of the disk that a virtual machine has etcd's data on; without one they are its own.
    disk: str = ""

    @property
    def port(self) -> str:
        """The host's port on the bridge: systemd-nspawn names it after the machine."""
        return f"vb-{self.machine}"


@dataclass(frozen=True)
class Layout:
    """A whole lab of given index and size."""

    name: str
    index: int
    azure: int
    rack: int
    #: Members of etcd of an estate, whose machines are the only hosts on the Azure side; 0: no estate.
    estate: int = 0

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 0 <= self.index < LABS_PER_MACHINE:
            raise LabError(f"lab index {self.index}: must be 0 to {LABS_PER_MACHINE - 1}")
        if self.estate and self.azure:
            raise LabError("--azure: write estate, or a number of hosts")
        for what, count in (("azure", self.azure or self.estate), ("rack", self.rack)):
            if not 1 <= count <= HOSTS_PER_SITE:
                raise LabError(f"--{what} {count}: write a number from 1 to {HOSTS_PER_SITE}")

    def _site(self, key: str, group: str, side: int) -> Site:
        letter = key[0]
        return Site(
            key=key,
            group=group,
            network=IPv4Network(f"10.98.{2 * self.index + side}.0/24"),
            bridge=f"is{letter}{self.index}",
            namespace=f"islab{self.index}-{letter}",
            router_port=f"is{letter}{self.index}-rt",
            wan_address=IPv4Address(f"100.64.{self.index}.{1 + side}"),
            wan_peer=IPv4Address(f"100.64.{self.index}.{2 - side}"),
        )

    @property
    def azure_site(self) -> Site:
        """The side that plays the Azure network."""
        return self._site("azure", "azure", 0)

    @property
    def rack_site(self) -> Site:
        """The side that plays the racks on premises."""
        return self._site("rack", "on_prem", 1)

    @property
    def sites(self) -> tuple[Site, Site]:
        """Both sides, Azure first."""
        return self.azure_site, self.rack_site

    def other(self, site: Site) -> Site:
        """The side across the WAN from `site`."""
        return self.rack_site if site.key == "azure" else self.azure_site

    @property
    def hosts(self) -> list[LabHost]:
        """All hosts, Azure first."""
        plan = [(self.azure_site, "az", self.azure), (self.rack_site, "rack", self.rack)]
        return [
            LabHost(
                name=f"{prefix}-{number}",
                site=site,
                address=site.network[10 + number],
                machine=f"is{self.index}-{prefix}-{number}",
                cgroup=f"ironspan-{self.name}-{prefix}-{number}",
            )
            for site, prefix, count in plan
            for number in range(1, count + 1)
        ]

    def host(self, name: str) -> LabHost:
        """The host called `name`; LabError names the ones there are."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(
            f"no host {name!r} in lab {self.name!r}; there are " + ", ".join(h.name for h in self.hosts)
        )

    @property
    def api_host(self) -> LabHost:
        """The host of the API endpoint: the last Azure host."""
        return [host for host in self.hosts if host.site.key == "azure"][-1]

    @property
    def api_address(self) -> IPv4Address:
        """Address of the API endpoint: its host's, or that of the load balancer that the estate declares."""
        return self.azure_site.network[10] if self.estate else self.api_host.address

    @property
    def firewall_table(self) -> str:
        """Name of the nftables table that keeps the machine from joining the two sides."""
        return f"ironspan_lab{self.index}"
