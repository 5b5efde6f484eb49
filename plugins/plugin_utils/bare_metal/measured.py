# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was measured in a server: Ironic's inspection data, in band (its agent) or out of band (Redfish).

A server says of itself what it wants. So only what is compared is taken, bounded, and decides about that
server alone; what is not what it should be is noted, and is never taken for a match.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import lldp
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import NVIDIA
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.taken import Taker
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tpm import read_tpm

Source = t.Literal["in band", "out of band"]
MOST_DEVICES, MOST_NICS, MOST_DISKS, MOST_COMPONENTS = 4096, 256, 1024, 256
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_ID = re.compile(r"(?:0x)?([0-9a-f]{4})")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_CLASSES = ("03", "DisplayController", "ProcessingAccelerators", "12")
_SMALLEST_DISK = 10**9


class Gpu(t.NamedTuple):
    """An NVIDIA GPU on the PCI bus: its device id, and its address ("" out of band)."""

    device: str
    address: str


class Disk(t.NamedTuple):
    """A disk: its size in bytes, and its kind, "" when that was not said."""

    name: str
    size: int
    kind: str


class Port(t.NamedTuple):
    """A network port.

    Args:
        name: what it is called there.
        mac: its address.
        speed_mbit: in band what it can do, out of band what its link has; None when that was not said.
        link: whether there is a signal; None when that was not said.
        neighbour: what the other end of its cable says.
    """

    name: str
    mac: str
    speed_mbit: int | None
    link: bool | None
    neighbour: lldp.Neighbour | None


@dataclasses.dataclass(frozen=True, slots=True)
class Inspection:
    """What one inspection of a server says; None where it says nothing.

    Args:
        source: how it was measured.
        serial: serial number in capitals; "" when not said.
        memory_mib: memory.
        memory_installed: whether that is what is installed, not what the kernel has left of it.
        gpus: NVIDIA GPUs.
        disks: disks, without removable and virtual ones.
        ports: network ports.
        firmware: component to version.
        tpm: SHA-256 of its TPM's endorsement key; "" where no TPM answered.
        unreadable: what could not be read.
    """

    source: Source
    serial: str = ""
    memory_mib: int | None = None
    memory_installed: bool = True
    gpus: tuple[Gpu, ...] | None = None
    disks: tuple[Disk, ...] | None = None
    ports: tuple[Port, ...] | None = None
    firmware: tuple[tuple[str, str], ...] = ()
    tpm: str | None = None
    unreadable: tuple[str, ...] = ()


def read_inspection(source: Source, data: t.Any, firmware: t.Any = None) -> Inspection:
    """Return what an inspection says; whatever it is given, it returns.

    Args:
        source: how it was measured.
        data: the answer of ``/v1/nodes/NODE/inventory``: ``inventory`` and ``plugin_data``.
        firmware: the answer of ``/v1/nodes/NODE/firmware``, or its list; None when nobody asked.
    """
    taker = Taker()
    answer = data if isinstance(data, Mapping) else {}
    if not isinstance(data, Mapping):
        taker.note("the answer")
    inventory = taker.part(answer, "inventory", "inventory")
    plugins = taker.part(answer, "plugin_data", "plugin_data")
    vendor = taker.part(inventory, "system_vendor", "system_vendor")
    memory = taker.part(inventory, "memory", "memory")
    installed = taker.number(memory, "physical_mb", "memory.physical_mb")
    total = taker.number(memory, "total", "memory.total")
    return Inspection(
        source=source,
        serial=taker.text(vendor, "serial_number", "system_vendor.serial_number").upper(),
        memory_mib=installed or (total >> 20 if total else None),
        memory_installed=bool(installed),
        gpus=_gpus(inventory, plugins, taker),
        disks=_disks(inventory, taker),
        ports=_ports(inventory, plugins, taker),
        firmware=_firmware(vendor, firmware, taker),
        tpm=read_tpm(plugins, taker),
        unreadable=tuple(taker.unreadable),
    )


def _gpus(
    inventory: Mapping[str, t.Any], plugins: Mapping[str, t.Any], taker: Taker
) -> tuple[Gpu, ...] | None:
    # The agent's list is plugin data, Redfish's is in the inventory.
    devices = taker.items(plugins, "pci_devices", "pci_devices", MOST_DEVICES)
    if devices is None:
        devices = taker.items(inventory, "pci_devices", "pci_devices", MOST_DEVICES)
    if devices is None:
        return None
    gpus = []
    for device in devices:
        ids = [
            _ID.fullmatch(taker.text(device, key, f"pci_devices.{key}").lower())
            for key in ("vendor_id", "product_id")
        ]
        if ids[0] is None or ids[1] is None:
            taker.note("pci_devices.vendor_id and product_id")
        elif ids[0][1] == NVIDIA and taker.text(device, "class", "pci_devices.class").startswith(
            _GPU_CLASSES
        ):
            address = taker.text(device, "bus", "pci_devices.bus").lower()
            gpus.append(Gpu(ids[1][1], address if _ADDRESS.fullmatch(address) else ""))
    return tuple(sorted(gpus))


def _disks(inventory: Mapping[str, t.Any], taker: Taker) -> tuple[Disk, ...] | None:
    disks = taker.items(inventory, "disks", "disks", MOST_DISKS)
    if disks is None:
        return None
    taken = []
    for disk in disks:
        size = taker.number(disk, "size", "disks.size")
        name = taker.text(disk, "name", "disks.name")
        if taker.text(disk, "tran", "disks.tran") == "usb" or not size or size < _SMALLEST_DISK:
            continue
        taken.append(Disk(name or "a disk", size, _kind_of(disk, name, taker)))
    return tuple(sorted(taken))


def _kind_of(disk: Mapping[str, t.Any], name: str, taker: Taker) -> str:
    if taker.text(disk, "tran", "disks.tran") == "nvme" or name.lower().removeprefix("/dev/").startswith(
        "nvme"
    ):
        return "nvme"
    rotational = taker.flag(disk, "rotational", "disks.rotational")
    # Redfish does not say how a disk that does not turn is connected.
    if rotational is None or (not rotational and not name.startswith("/dev/")):
        return ""
    return "hdd" if rotational else "ssd"


def _ports(
    inventory: Mapping[str, t.Any], plugins: Mapping[str, t.Any], taker: Taker
) -> tuple[Port, ...] | None:
    interfaces = taker.items(inventory, "interfaces", "interfaces", MOST_NICS)
    if interfaces is None:
        return None
    parsed = taker.part(plugins, "parsed_lldp", "parsed_lldp")
    raw = taker.part(plugins, "lldp_raw", "lldp_raw")
    ports = []
    for interface in interfaces:
        mac = taker.text(interface, "mac_address", "interfaces.mac_address").lower().replace("-", ":")
        name = taker.text(interface, "name", "interfaces.name")
        if _MAC.fullmatch(mac) is None:
            taker.note("interfaces.mac_address")
            continue
        neighbour = None
        if name in parsed:
            neighbour = lldp.of_parsed(taker.part(parsed, name, "parsed_lldp"), "parsed_lldp", taker)
        elif (tlvs := raw.get(name) or interface.get("lldp")) is not None:
            neighbour = lldp.of_raw(tlvs, "lldp_raw", taker)
        speed = taker.number(interface, "speed_mbps", "interfaces.speed_mbps")
        link = taker.flag(interface, "has_carrier", "interfaces.has_carrier")
        ports.append(Port(name or mac, mac, speed or None, link, neighbour))
    return tuple(ports)


def _firmware(vendor: Mapping[str, t.Any], components: t.Any, taker: Taker) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    bios = taker.text(
        taker.part(vendor, "firmware", "system_vendor.firmware"), "version", "system_vendor.firmware.version"
    )
    if bios:
        found["bios"] = bios
    holder = components if isinstance(components, Mapping) else {"firmware": components}
    if not isinstance(components, (Mapping, Sequence, type(None))):
        taker.note("firmware")
    for component in taker.items(holder, "firmware", "firmware", MOST_COMPONENTS) or ():
        name = taker.text(component, "component", "firmware.component").lower()
        version = taker.text(component, "current_version", "firmware.current_version")
        if name and version:
            found[name] = version
    return tuple(sorted(found.items()))
