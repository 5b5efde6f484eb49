# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Looking at a lab: does it answer, and how does it stand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

from ironspan.lab import base_image, host, inventory, keys, mirror, names, processes, state
from ironspan.lab.azure import machine_hosts, service
from ironspan.lab.commands import attempt
from ironspan.lab.errors import LabError
from ironspan.lab.layout import MIRROR_PORT, LabHost
from ironspan.lab.machine import Machine, detect
from ironspan.lab.virtual import rack as racks
from ironspan.lab.virtual import variables, world
from ironspan.lab.wan import control

#: What a busy host's sshd may take for its greeting; asking again sooner only makes it busier.
_GREETING_S = 5.0


def answers(address: str, port: int, timeout_s: float = 1.0) -> bytes | None:
    """The first bytes a TCP server sends by itself, b"" when it sends none; None when nobody listens."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            with contextlib.suppress(TimeoutError):
                return connection.recv(64)
            return b""
    except OSError:
        return None


def wait_ssh(
    lab: Path, one: LabHost, machine: Machine, stop: threading.Event, timeout_s: float = 300.0
) -> None:
    """Return once a real SSH login works; LabError with the end of the host's log when it never does.

    Setting `stop` ends the wait with a LabError.
    """
    deadline = time.monotonic() + timeout_s
    while not (answers(str(one.address), 22, _GREETING_S) or b"").startswith(b"SSH-"):
        gone = host.running(machine, lab, one) is None
        if gone or time.monotonic() > deadline:
            log = lab / "log" / f"{host.process_name(one)}.log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log.exists() else ""
            what = "ended while booting" if gone else f"does not answer SSH within {timeout_s:.0f} s"
            raise LabError(f"host {one.name} {what}; see {log}\n{tail}", exit_code=1)
        if stop.wait(0.1):
            raise LabError(f"stopped while waiting for {one.name}", exit_code=1)
    done = attempt(["ssh", *keys.ssh_options(lab), "-o", "BatchMode=yes", f"root@{one.address}", "true"])
    if done.returncode != 0:
        raise LabError(f"host {one.name} refuses the lab's key: {done.stderr.strip()}", exit_code=1)


def status(name: str) -> dict[str, Any]:
    """Everything `lab status` shows.

    Returns:
        {"name", "exists", "machine": {...}, "concessions", "warnings", "base_image"} and, when the lab
        exists, {"folder", "inventory", "size", "sites", "hosts", "machines", "link", "dns", "azure",
        "bare_metal", "mirror", "up"}.
    """
    machine = detect()
    current = state.load(name)
    tree = base_image.tree_path()
    found: dict[str, Any] = {
        "name": name,
        "exists": current is not None,
        "labs": state.all_labs(),
        "machine": machine.as_dict(),
        "concessions": machine.concessions(),
        "warnings": machine.warnings(),
        "base_image": {"path": str(tree), "built": tree.is_dir()},
    }
    if current is None:
        return found
    layout, folder = current.layout, current.folder
    hosts = [_host(machine, folder, one) for one in layout.hosts]
    link: dict[str, Any] = {"pid": processes.running(folder, "wan"), "mtu": current.wan_mtu}
    try:
        link.update(control.request(folder))
    except LabError as error:
        link["error"] = str(error)
    dns = {str(site.controller): names.answers(str(site.controller), layout) for site in layout.sites}
    serving = {
        f"http://{site.controller}:{MIRROR_PORT}": answers(str(site.controller), MIRROR_PORT, 0.2) is not None
        for site in layout.sites
    }
    azure = service.status(folder, layout) if current.azure_services else None
    found.update(
        folder=str(folder),
        inventory=str(inventory.source(layout, folder)),
        size={"azure": layout.azure, "rack": layout.rack, "estate": layout.estate},
        sites=[
            {"name": s.key, "network": str(s.network), "bridge": s.bridge, "router": str(s.router)}
            for s in layout.sites
        ],
        hosts=hosts,
        machines=[_host(machine, folder, one) for one in machine_hosts.known(layout, folder)],
        link=link,
        dns=dns,
        azure=azure,
        bare_metal=world.status(folder / variables.FOLDER, racks.of(layout), current.bare_metal),
        mirror={"folder": str(mirror.folder_path()), "filled": mirror.filled(), "serving": serving},
        up=all(h["ssh"] for h in hosts)
        and "error" not in link
        and all(dns.values())
        and (azure is None or azure["ready"] or not azure["installed"]),
    )
    return found


def _host(machine: Machine, folder: Path, one: LabHost) -> dict[str, Any]:
    outer = host.running(machine, folder, one)
    return {
        "name": one.name,
        "site": one.site.key,
        "address": str(one.address),
        "pid": outer,
        "init_pid": host.init_pid(machine, one) if outer else None,
        "ssh": bool(outer) and (answers(str(one.address), 22, _GREETING_S) or b"").startswith(b"SSH-"),
    }
