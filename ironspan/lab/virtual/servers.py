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
    "swtpm": "swtpm",
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
    def tpm(self) -> Path:
        """The folder of its TPM: what that remembers, and while it is on its socket and process number."""
        return self.folder / f"{self.name}.tpm"

    @property
    def _tpm_state(self) -> str:
        """Where its TPM keeps its state, as an argument that no other process has."""
        return f"dir={self.tpm}"

    @property
    def _tpm_socket(self) -> Path:
        return self.tpm / "socket"

    @property
    def _tpm_pidfile(self) -> Path:
        return self.tpm / "pid"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files and folders that are its own."""
        return (self.console, self.disk, self.variables, self.tpm, self.monitor, self.pidfile)

    def runs_as(self, pid: int) -> bool:
        """Tell whether a process is this server."""
        return _called_with(pid, self.uuid)

    def has_process(self, pid: int) -> bool:
        """Tell whether a process is this server or its TPM."""
        return self.runs_as(pid) or _called_with(pid, self._tpm_state)

    def is_on(self) -> bool:
        """Tell whether it runs."""
        try:
            return self.runs_as(int(self.pidfile.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return False

    def make(self) -> None:
        """Make its disk, its firmware's memory and its TPM's folder where they are missing."""
        self.console.parent.mkdir(exist_ok=True)
        if not self.variables.exists():
            shutil.copyfile(VARIABLES, self.variables)
        self.tpm.mkdir(mode=0o700, exist_ok=True)
        with self.disk.open("ab") as handle:
            handle.truncate(self.disk_gib * _GIB)

    def remove(self) -> None:
        """Remove what is its own, the disk last: until then another `lab up` finds the server again."""
        for path in sorted(self.files, key=lambda path: path == self.disk):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

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
            "-chardev", f"socket,id=tpm,path={self._tpm_socket}",
            "-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm",
        ]  # fmt: skip

    def tpm_command(self) -> list[str]:
        """The command that starts its TPM, which has to be there before the server starts.

        It returns when the TPM answers, which ends by itself with its server, however that ends. Its seed is
        made by the first start and stays in its folder, so the server keeps its endorsement key.
        """
        return [
            "swtpm", "socket", "--tpm2", "--tpmstate", self._tpm_state, "--ctrl",
            f"type=unixio,path={self._tpm_socket},mode=0600", "--pid", f"file={self._tpm_pidfile}",
            "--terminate", "--daemon",
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
            "tpm": {
                "command": self.tpm_command(), "pidfile": str(self._tpm_pidfile), "mark": self._tpm_state,
            },
        }  # fmt: skip

    def bmc(self) -> Described:
        """Its BMC."""
        return {"identity": self.uuid, "serial": self.serial, "address": self.bmc_address}


def _called_with(pid: int, argument: str) -> bool:
    """Tell whether a process was called with an argument."""
    try:
        return argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def missing() -> list[str]:
    """Return the Debian packages that this machine lacks for virtual servers."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = {package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}
    return sorted(found | (set() if CODE.is_file() and VARIABLES.is_file() else {"ovmf"}))
