# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A virtual server: what it has, and the command that runs it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import uuid
from pathlib import Path

from ironspan.lab.bmc.emulator import System
from ironspan.lab.bmc.process import Described
from ironspan.lab.virtual.rack import Rack

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    # Ironic's, for the media that it makes.
    "mkisofs": "genisoimage",
    "mcopy": "mtools",
}
FIRMWARE = Path("/usr/share/OVMF")
CODE, VARIABLES = FIRMWARE / "OVMF_CODE_4M.ms.fd", FIRMWARE / "OVMF_VARS_4M.ms.fd"
"""Firmware with Secure Boot on, and Microsoft's keys in it, as servers come."""
LEAF = "leaf-1"
"""The switch that all of them are cabled to."""
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Server:
    """A virtual server.

    Args:
        folder: of all servers' files.
        rack: where it stands.
        number: from 1; also its unit in the rack.
        memory_gib: the agent's ramdisk needs 4 GiB.
        cpus: virtual ones.
        disk_gib: sparse.
    """

    folder: Path
    rack: Rack
    number: int
    memory_gib: int = 4
    cpus: int = 2
    disk_gib: int = 16

    @property
    def name(self) -> str:
        """Its name."""
        return f"server-{self.number}"

    @property
    def serial(self) -> str:
        """Its serial number, which its BMC says and its firmware too."""
        return f"LAB{self.number:04}"

    @property
    def uuid(self) -> str:
        """Its identity in Redfish, the same in every lab."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}.lab.ironspan"))

    @property
    def mac(self) -> str:
        """The address of its port."""
        return f"52:54:00:77:00:{self.number:02x}"

    @property
    def address(self) -> str:
        """The address that it gets when it is deployed."""
        return str(self.rack.server(self.number))

    @property
    def bmc_address(self) -> str:
        """The address of its BMC."""
        return str(self.rack.bmc(self.number))

    @property
    def tap(self) -> str:
        """Its port's end on the bridge."""
        return self.rack.tap(self.number)

    @property
    def switch_port(self) -> str:
        """The port of the leaf switch that it is cabled to, as the switch calls it."""
        return f"Ethernet1/{self.number}"

    @property
    def console(self) -> Path:
        """What its serial console says."""
        return self.folder / "log" / f"{self.name}.console"

    @property
    def disk(self) -> Path:
        """Its disk."""
        return self.folder / f"{self.name}.raw"

    @property
    def variables(self) -> Path:
        """What its firmware remembers."""
        return self.folder / f"{self.name}.fd"

    @property
    def monitor(self) -> Path:
        """QEMU's control socket."""
        return self.folder / f"{self.name}.qmp"

    @property
    def pidfile(self) -> Path:
        """The number of its process, while it is on."""
        return self.folder / f"{self.name}.pid"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are its own."""
        return (self.console, self.disk, self.variables, self.monitor, self.pidfile)

    def runs_as(self, pid: int) -> bool:
        """Tell whether a process is this server."""
        try:
            return self.uuid.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

    def is_on(self) -> bool:
        """Tell whether it runs."""
        try:
            return self.runs_as(int(self.pidfile.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return False

    def make(self) -> None:
        """Make its disk and its firmware's memory where they are missing."""
        self.console.parent.mkdir(exist_ok=True)
        if not self.variables.exists():
            shutil.copyfile(VARIABLES, self.variables)
        with self.disk.open("ab") as handle:
            handle.truncate(self.disk_gib * _GIB)

    def command(self) -> list[str]:
        """The command that starts it, without media.

        Always emulated (TCG): /dev/kvm opens on machines that are virtual themselves, and the guest then
        hangs at its first instruction.
        """
        return [
            "qemu-system-x86_64", "-name", self.name, "-uuid", self.uuid, "-accel", "tcg,thread=multi",
            "-machine", "q35,smm=on", "-cpu", "max", "-smp", str(self.cpus), "-m", f"{self.memory_gib}G",
            "-smbios", f"type=1,manufacturer=ironspan,product=Virtual server,serial={self.serial}",
            "-nodefaults", "-display", "none", "-device", "virtio-rng-pci", "-chardev",
            f"file,id=console,path={self.console},append=on", "-serial", "chardev:console",
            "-qmp", f"unix:{self.monitor},server=on,wait=off",
            "-global", "driver=cfi.pflash01,property=secure,value=on",
            "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={CODE}",
            "-drive", f"if=pflash,format=raw,unit=1,file={self.variables}",
            "-drive", f"if=none,id=disk,format=raw,file={self.disk},discard=unmap,cache=unsafe",
            "-device", "virtio-blk-pci,drive=disk,bootindex=1",
            "-netdev", f"tap,id=port,ifname={self.tap},script=no,downscript=no",
            # Without an option ROM: firmware does not try the network first.
            "-device", f"virtio-net-pci,netdev=port,mac={self.mac},romfile=",
        ]  # fmt: skip

    def system(self) -> System:
        """What the emulator of BMCs has to know of it."""
        return {
            "uuid": self.uuid,
            "name": self.name,
            "power_state": "Off",
            "nics": [{"mac": self.mac, "ip": self.address}],
            "command": self.command(),
            "monitor": str(self.monitor),
            "pidfile": str(self.pidfile),
        }

    def bmc(self) -> Described:
        """Its BMC."""
        return {"identity": self.uuid, "serial": self.serial, "address": self.bmc_address}


def missing() -> list[str]:
    """Return the Debian packages that this machine lacks for virtual servers."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = {package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}
    return sorted(found | (set() if CODE.is_file() and VARIABLES.is_file() else {"ovmf"}))
