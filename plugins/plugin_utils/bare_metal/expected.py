# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The servers that a site expects in its racks, as somebody declared them.

What is not declared (empty, or None for a number) is not compared with what is measured.
"""

from __future__ import annotations

import dataclasses
import typing as t

DiskKind = t.Literal["", "nvme", "ssd", "hdd"]


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """A network port of a server.

    Args:
        mac: six lower-case octets with colons.
        name: what the operating system or the people call it.
        switch: system name of the switch it is cabled to.
        port: that switch's port.
        speed_gbit: speed of the link in Gbit/s.
    """

    mac: str
    name: str = ""
    switch: str = ""
    port: str = ""
    speed_gbit: int | None = None

    @property
    def called(self) -> str:
        """The name, the MAC address where it has none."""
        return self.name or self.mac


@dataclasses.dataclass(frozen=True, slots=True)
class Disks:
    """Disks of one size.

    Args:
        count: how many.
        size_gb: size of each as it is sold, in 10^9 bytes.
        kind: "" when it does not matter.
    """

    count: int
    size_gb: int
    kind: DiskKind = ""

    def __str__(self) -> str:
        return f"{self.count} x {self.size_gb} GB{f' {self.kind}' if self.kind else ''}"


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where a server is written. Lines and columns count from 1."""

    file: str
    line: int
    column: int


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedServer:
    """A server, and what is in it.

    Args:
        name: its name in Ironic and, later, in the cluster.
        bmc_address: IP address or name of its management controller.
        rack: name of the rack.
        position: lowest unit of the rack that it takes, from 1.
        height: number of units.
        serial: serial number of the chassis, in capitals.
        model: what the maker calls it.
        group: group of the inventory that it shall join.
        gpu_count: how many GPUs; 0 says that there are none.
        gpu_model: a model (``H100``) or exactly one variant of it (``H100 SXM5 80GB``).
        memory_gib: installed memory.
        nvlink_domain: name of the NVLink domain that its GPUs are part of.
        tpm_ek_sha256: SHA-256 of the endorsement key of its TPM, in hexadecimal digits.
        nics: network ports.
        disks: disks, by size.
        firmware: component to version that it shall have (``bios``, ``bmc``, ...).
        origin: where it is written; not part of what it is.
    """

    name: str
    bmc_address: str
    rack: str
    position: int
    height: int = 1
    serial: str = ""
    model: str = ""
    group: str = ""
    gpu_count: int | None = None
    gpu_model: str = ""
    memory_gib: int | None = None
    nvlink_domain: str = ""
    tpm_ek_sha256: str = ""
    nics: tuple[Nic, ...] = ()
    disks: tuple[Disks, ...] = ()
    firmware: tuple[tuple[str, str], ...] = ()
    origin: Origin = dataclasses.field(default=Origin("", 0, 0), compare=False)

    @property
    def slot(self) -> str:
        """Where it is mounted, for people: ``rack-1 U10`` or ``rack-1 U10-17``."""
        top = f"-{self.position + self.height - 1}" if self.height > 1 else ""
        return f"{self.rack} U{self.position}{top}"
