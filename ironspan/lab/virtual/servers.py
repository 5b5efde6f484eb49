# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers on a bridge of their own, powered off, and the BMCs that start them."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from ironspan.lab import commands, files, packed, processes
from ironspan.lab.bmc import emulator
from ironspan.lab.errors import LabError

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "openssl": "openssl",
    # Ironic's, for the media that it makes.
    "mkisofs": "genisoimage",
    "mcopy": "mtools",
}
FIRMWARE = Path("/usr/share/OVMF")
CODE, VARIABLES = FIRMWARE / "OVMF_CODE_4M.ms.fd", FIRMWARE / "OVMF_VARS_4M.ms.fd"
"""Firmware with Secure Boot on, and Microsoft's keys in it, as servers come."""
BRIDGE, ADDRESS, PREFIX = "ironspan-metal", "192.168.77.1", "192.168.77"
USER = "admin"
PORT = 8443
BMCS = "bmcs"
_STARTS_WITHIN_S = 60.0


@dataclasses.dataclass(frozen=True)
class Server:
    """A virtual server.

    Args:
        folder: of all servers' files.
        number: from 1.
        memory_mib: the agent's ramdisk needs 3 GiB.
        cpus: virtual ones.
        disk_gib: sparse.
    """

    folder: Path
    number: int
    memory_mib: int = 3072
    cpus: int = 2
    disk_gib: int = 8

    @property
    def name(self) -> str:
        """Its name."""
        return f"server-{self.number}"

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
        return f"{PREFIX}.{10 + self.number}"

    @property
    def tap(self) -> str:
        """Its port's end on the bridge."""
        return f"ironspan-m{self.number}"

    @property
    def console(self) -> Path:
        """What its serial console says."""
        return self.folder / "log" / f"{self.name}.console"

    @property
    def disk(self) -> Path:
        """Its disk."""
        return self.folder / f"{self.name}.raw"

    @property
    def monitor(self) -> Path:
        """QEMU's control socket."""
        return self.folder / f"{self.name}.qmp"

    def command(self) -> list[str]:
        """The command that starts it, without media.

        Always emulated (TCG): /dev/kvm opens on machines that are virtual themselves, and the guest then
        hangs at its first instruction.
        """
        variables = self.folder / f"{self.name}.fd"
        return [
            "qemu-system-x86_64", "-name", self.name, "-uuid", self.uuid, "-accel", "tcg,thread=multi",
            "-machine", "q35,smm=on", "-cpu", "max", "-smp", str(self.cpus), "-m", str(self.memory_mib),
            "-nodefaults", "-display", "none", "-device", "virtio-rng-pci", "-chardev",
            f"file,id=console,path={self.console},append=on", "-serial", "chardev:console",
            "-qmp", f"unix:{self.monitor},server=on,wait=off",
            "-global", "driver=cfi.pflash01,property=secure,value=on",
            "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={CODE}",
            "-drive", f"if=pflash,format=raw,unit=1,file={variables}",
            "-drive", f"if=none,id=disk,format=raw,file={self.disk},discard=unmap,cache=unsafe",
            "-device", "virtio-blk-pci,drive=disk,bootindex=1",
            "-netdev", f"tap,id=port,ifname={self.tap},script=no,downscript=no",
            # Without an option ROM: firmware does not try the network first.
            "-device", f"virtio-net-pci,netdev=port,mac={self.mac},romfile=",
        ]  # fmt: skip

    def described(self) -> dict[str, object]:
        """What the emulator has to know."""
        return {
            "uuid": self.uuid,
            "name": self.name,
            "power_state": "Off",
            "nics": [{"mac": self.mac, "ip": self.address}],
            "command": self.command(),
            "monitor": str(self.monitor),
        }


@dataclasses.dataclass(frozen=True)
class Bmcs:
    """The BMCs of the servers, all behind one address; each server is a system of its own.

    Args:
        folder: of their files.
    """

    folder: Path

    @property
    def url(self) -> str:
        """Where they answer."""
        return f"https://{ADDRESS}:{PORT}"

    @property
    def login(self) -> Path:
        """A file with name and password of their account, a line each."""
        return self.folder / "login"

    @property
    def password(self) -> str:
        """The password of ``USER``."""
        return self.login.read_text(encoding="ascii").splitlines()[1]

    @property
    def certificate(self) -> Path:
        """What their certificate is checked with."""
        return self.folder / "bmc.crt"


def missing() -> list[str]:
    """Return the Debian packages that this machine lacks for virtual servers."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = {package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}
    return sorted(found | (set() if CODE.is_file() and VARIABLES.is_file() else {"ovmf"}))


def up(folder: Path, count: int) -> tuple[Bmcs, list[Server]]:
    """Make servers, powered off, their network, and the BMCs that start them.

    Args:
        folder: for their files.
        count: how many servers.

    Raises:
        LabError: something is not installed or not built, or the network or the BMCs do not come up.
    """
    lacking = missing()
    if lacking:
        raise LabError(f"virtual servers need: apt-get install -y {' '.join(lacking)}")
    environment = {"PYTHONPATH": str(packed.library(emulator.ENVIRONMENT, emulator.TITLE))}
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "log").mkdir(exist_ok=True)
    servers = [Server(folder, number) for number in range(1, count + 1)]
    _network(servers)
    for server in servers:
        with server.disk.open("wb") as handle:
            handle.truncate(server.disk_gib << 30)
        shutil.copyfile(VARIABLES, folder / f"{server.name}.fd")
    bmcs = Bmcs(folder)
    _login(bmcs, environment)
    _certificate(bmcs)
    configuration = {
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": [server.described() for server in servers],
        "SUSHY_EMULATOR_LISTEN_IP": ADDRESS,
        "SUSHY_EMULATOR_LISTEN_PORT": PORT,
        "SUSHY_EMULATOR_AUTH_FILE": str(folder / "htpasswd"),
        "SUSHY_EMULATOR_SSL_CERT": str(folder / "bmc.crt"),
        "SUSHY_EMULATOR_SSL_KEY": str(folder / "bmc.key"),
        "SUSHY_EMULATOR_STATE_DIR": str(folder / "state"),
    }
    (folder / "state").mkdir(exist_ok=True)
    # Read as Python by the emulator; JSON's true is not.
    text = "".join(f"{name} = {value!r}\n" for name, value in configuration.items())
    files.write_atomic(folder / "emulator.conf", text)
    script = Path(__file__).with_name("emulator.py")
    command = [sys.executable, "-s", "-P", str(script), "--config", str(folder / "emulator.conf"), "--fake"]
    processes.spawn(command, folder, BMCS, environment)
    _wait(folder)
    return bmcs, servers


def down(folder: Path) -> None:
    """End servers and BMCs, and remove the network; their files stay."""
    processes.kill(processes.marked(folder))
    for name in json.loads((folder / "links.json").read_text()) if (folder / "links.json").is_file() else []:
        commands.attempt(["ip", "link", "delete", name])


def _network(servers: Sequence[Server]) -> None:
    """Make the bridge, a port a server, and give addresses out while no system is on the disks."""
    folder = servers[0].folder
    # Written before they are made, so that they are found after a kill.
    files.write_atomic(folder / "links.json", json.dumps([*(server.tap for server in servers), BRIDGE]))
    commands.run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    commands.run(["ip", "address", "add", f"{ADDRESS}/24", "dev", BRIDGE])
    commands.run(["ip", "link", "set", BRIDGE, "up"])
    for server in servers:
        commands.run(["ip", "tuntap", "add", server.tap, "mode", "tap"])
        commands.run(["ip", "link", "set", server.tap, "master", BRIDGE, "up"])
    processes.spawn(
        [
            "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces",
            f"--interface={BRIDGE}", f"--dhcp-range={PREFIX}.100,{PREFIX}.199,1h", "--dhcp-option=3",
            f"--dhcp-leasefile={folder / 'leases'}", f"--pid-file={folder / 'dnsmasq.pid'}",
        ],
        folder, "dhcp",
    )  # fmt: skip


def _login(bmcs: Bmcs, environment: dict[str, str]) -> None:
    """Make a password; write it down for who asks the BMCs, and its hash for them."""
    password = secrets.token_urlsafe(18)
    hashing = "import bcrypt, sys; print(bcrypt.hashpw(sys.stdin.buffer.read(), bcrypt.gensalt(4)).decode())"
    variables = [f"{name}={value}" for name, value in environment.items()]
    hashed = commands.run(["env", *variables, sys.executable, "-s", "-c", hashing], stdin=password)
    files.write_atomic(bmcs.login, f"{USER}\n{password}\n", 0o600)
    files.write_atomic(bmcs.folder / "htpasswd", f"{USER}:{hashed}", 0o600)


def _certificate(bmcs: Bmcs) -> None:
    commands.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "365", "-subj", "/CN=lab BMC", "-addext", f"subjectAltName=IP:{ADDRESS}",
            "-keyout", str(bmcs.folder / "bmc.key"), "-out", str(bmcs.certificate),
        ]
    )  # fmt: skip


def _wait(folder: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < until:
        if processes.running(folder, BMCS) is None:
            break
        try:
            with socket.create_connection((ADDRESS, PORT), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    log = (folder / "log" / f"{BMCS}.log").read_text(errors="replace")
    raise LabError(f"the BMCs do not answer: {log[-1000:]}", exit_code=1)
