# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lab's name server: knows the lab's names, answers "no such name" to everything else at once.

A resolver that does not answer costs kubeadm 10 s a name, and without one CoreDNS has no upstream.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from ironspan.lab import files, processes
from ironspan.lab.azure import settings
from ironspan.lab.errors import LabError
from ironspan.lab.layout import API_NAME, DOMAIN, Layout
from ironspan.lab.state import Resource

PROCESS = "dnsmasq"
#: The file with what an estate's private zones say; the emulated Azure writes it.
ZONES = "names-azure"


def resources() -> list[Resource]:
    """What `ensure` starts."""
    return [Resource("process", PROCESS)]


def hosts_text(layout: Layout) -> str:
    """The names in the format of /etc/hosts."""
    lines = [f"{host.address} {host.name}.{DOMAIN} {host.name}" for host in layout.hosts]
    if not layout.estate:
        lines.append(f"{layout.api_address} {API_NAME}")
    for site in layout.sites:
        lines.append(f"{site.controller} mirror-{site.key}.{DOMAIN}")
        lines.append(f"{site.router} router-{site.key}.{DOMAIN}")
    # What leads to an estate's private endpoints is said by its zones alone.
    services = settings.SERVICE_NAMES if layout.estate else settings.NAMES
    lines += [f"{layout.azure_site.endpoint} {name}" for name in services]
    return "\n".join(lines) + "\n"


def command(folder: Path, layout: Layout) -> list[str]:
    """The dnsmasq command: no configuration but this, no upstream, both bridges."""
    return [
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
        "--local=/#/", f"--addn-hosts={folder / 'names'}", "--user=root", "--pid-file=", "--log-facility=-",
        *([f"--addn-hosts={folder / ZONES}"] if layout.estate else []),
        "--bind-interfaces", "--except-interface=lo",
        *(f"--listen-address={site.controller}" for site in layout.sites),
    ]  # fmt: skip


def ensure(folder: Path, layout: Layout) -> bool:
    """Start the name server unless it runs; returns whether it was started."""
    changed = files.write_if_changed(folder / "names", hosts_text(layout))
    if processes.running(folder, PROCESS) is not None:
        if changed:
            read_again(folder)
        return False
    (folder / ZONES).touch()
    processes.spawn(command(folder, layout), folder, PROCESS)
    for site in layout.sites:
        _wait(str(site.controller), layout, folder)
    return True


def write_zones(folder: Path, addresses: Mapping[str, str]) -> None:
    """Let the name server of a lab answer what private zones say.

    Args:
        folder: The lab's.
        addresses: Name -> address.
    """
    text = "".join(f"{address} {name}\n" for name, address in sorted(addresses.items()))
    if files.write_if_changed(folder / ZONES, text):
        read_again(folder)


def read_again(folder: Path) -> None:
    """Let the name server of a lab read its names again (dnsmasq(8), NOTES), if it runs."""
    pid = processes.running(folder, PROCESS)
    if pid is not None:
        os.kill(pid, signal.SIGHUP)


def answers(server: str, layout: Layout) -> bool:
    """Tell whether the name server at an address answers."""
    site = layout.azure_site
    # One that does not run refuses at once; one that runs on a busy machine may take its time.
    return lookup(server, f"router-{site.key}.{DOMAIN}", timeout_s=5) == [str(site.router)]


def _wait(server: str, layout: Layout, folder: Path, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not answers(server, layout):
        if time.monotonic() > deadline or processes.running(folder, PROCESS) is None:
            raise LabError(f"the name server does not answer on {server}; see {folder}/log/{PROCESS}.log", 1)
        time.sleep(0.05)


def lookup(server: str, name: str, timeout_s: float = 1.0) -> list[str] | None:
    """Ask `server` for the IPv4 addresses of `name` (RFC 1035); None when it does not answer."""
    number = random.randrange(65536)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.settimeout(timeout_s)
            channel.connect((server, 53))
            channel.send(query)
            reply = channel.recv(4096)
    except OSError:
        return None
    return parse_reply(query, reply)


def parse_reply(query: bytes, reply: bytes) -> list[str] | None:
    """The IPv4 addresses in a DNS reply; None when it does not answer the query or is cut short."""
    if len(reply) < len(query) or reply[:2] != query[:2] or reply[12 : len(query)] != query[12:]:
        return None
    answers, position, found = struct.unpack(">H", reply[6:8])[0], len(query), []
    for _ in range(answers):
        # The name is a pointer (2 bytes) in what dnsmasq answers; type, class, TTL, length and data follow.
        if len(reply) < position + 12:
            return None
        kind, _, _, length = struct.unpack(">HHIH", reply[position + 2 : position + 12])
        data = reply[position + 12 : position + 12 + length]
        if kind == 1 and len(data) == 4:
            found.append(socket.inet_ntoa(data))
        position += 12 + length
    return found
