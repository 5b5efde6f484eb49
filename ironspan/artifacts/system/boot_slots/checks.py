# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The checks that a system has to pass: each says what is wrong, "" where nothing is."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
import typing as t

from ironspan.artifacts.system.boot_slots.state import SLOTS, SlotError

DEADLINE_S = 900
"""Seconds from the kernel's start; a large server's cloud-init takes one or two minutes."""
SETTINGS = "etc/ironspan/slots.json"
"""Written by cloud-init: address (with its prefix), gateway, deadline_seconds. All may be missing."""


class Machine:
    """The server as checks see it.

    Args:
        root: folder of its files.
    """

    def __init__(self, root: pathlib.Path = pathlib.Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str:
        """Return a file's text, "" when it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def found(self, pattern: str) -> list[str]:
        """Return the files of a pattern."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def output(self, *command: str) -> str:
        """Return what a program prints, "" when it fails."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
            return done.stdout if done.returncode == 0 else ""
        return ""

    def banner(self) -> str:
        """Return what the SSH server says first, "" when none answers."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 22), 10) as link:
            return link.recv(64).decode("ascii", "replace")
        return ""

    def parts(self) -> dict[str, str]:
        """Return the partitions of the disk that the running root is on: name -> device."""
        events = (self.event(path) for path in self._own().parent.glob("*/uevent"))
        return {event["PARTNAME"]: f"/dev/{event['DEVNAME']}" for event in events if "PARTNAME" in event}

    def slot(self) -> str:
        """Return the slot that runs.

        Raises:
            SlotError: the root is on no slot.
        """
        name = self.event(self._own() / "uevent").get("PARTNAME", "")
        if name not in [f"root-{slot}" for slot in SLOTS]:
            raise SlotError(f"the root is on partition {name!r}, which is no slot")
        return name[-1]

    def event(self, path: pathlib.Path) -> dict[str, str]:
        """Return the fields of a device's uevent."""
        pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
        return {name: value for name, _, value in pairs}

    def _own(self) -> pathlib.Path:
        """Return the folder in sysfs of the partition that the root is on."""
        device = self.root.stat().st_dev
        return pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time()


Settings = t.Mapping[str, t.Any]


def check_network(machine: Machine, settings: Settings) -> str:
    """The address that the site gave it is up, and the way out is there."""
    try:
        links = json.loads(machine.output("ip", "-json", "address", "show", "up") or "[]")
        routes = json.loads(machine.output("ip", "-json", "route", "show", "default") or "[]")
    except ValueError:
        return "ip prints no JSON"
    entries = [entry for link in links for entry in link.get("addr_info", ())]
    found = [f"{entry['local']}/{entry['prefixlen']}" for entry in entries if entry.get("scope") == "global"]
    address, gateway = settings.get("address"), settings.get("gateway")
    if address and address not in found:
        return f"{address} is not up, found {', '.join(found) or 'no address'}"
    if not found:
        return "no address is up"
    if gateway and gateway not in [route.get("gateway") for route in routes]:
        return f"no way out by {gateway}"
    return ""


def check_ssh(machine: Machine, settings: Settings) -> str:
    """The SSH server answers."""
    return "" if machine.banner().startswith("SSH-") else "no server answers on port 22"


def check_disk(machine: Machine, settings: Settings) -> str:
    """The root can be written, and the partition for data is there and mounted."""
    mounts = {}
    for line in machine.text("proc/self/mounts").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            mounts[fields[1]] = fields[3].split(",")
    for place in ("/", "/data", "/var/lib/containerd", "/var/lib/kubelet"):
        if place not in mounts:
            return f"{place} is not mounted"
        if "rw" not in mounts[place]:
            return f"{place} cannot be written"
    return ""


def check_time(machine: Machine, settings: Settings) -> str:
    """The clock is not before the day of the image."""
    made = pathlib.Path(__file__).stat().st_mtime
    return "" if machine.now() >= made else "the clock is before the day of the image"


def check_cloud_init(machine: Machine, settings: Settings) -> str:
    """cloud-init is at its end, without errors."""
    try:
        result = json.loads(machine.text("run/cloud-init/result.json") or "null")
    except ValueError:
        result = None
    if not isinstance(result, dict) or not isinstance(result.get("v1"), dict):
        return "it has not finished"
    errors = result["v1"].get("errors") or []
    return f"{len(errors)} errors, the first: {errors[0]}" if errors else ""


def check_units(machine: Machine, settings: Settings) -> str:
    """No unit of systemd failed."""
    text = machine.output("systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager")
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    return f"{', '.join(names)} failed" if names else ""


def check_nvidia(machine: Machine, settings: Settings) -> str:
    """Where the image has NVIDIA's module for its kernel, and the server a GPU of theirs, it is loaded."""
    kernel = machine.text("proc/sys/kernel/osrelease").strip()
    cards = machine.found("sys/bus/pci/devices/*/vendor")
    if not any(machine.text(card).strip() == "0x10de" for card in cards):
        return ""
    modules = machine.found(f"usr/lib/modules/{kernel}/**/nvidia.ko*")
    if modules and not machine.text("proc/driver/nvidia/version"):
        return "the module is not loaded"
    return ""


CHECKS: t.Mapping[str, t.Callable[[Machine, Settings], str]] = {
    "network": check_network,
    "ssh": check_ssh,
    "disk": check_disk,
    "time": check_time,
    "cloud-init": check_cloud_init,
    "units": check_units,
    "nvidia": check_nvidia,
}


def examined(machine: Machine) -> dict[str, str]:
    """Return what is wrong, by the name of the check."""
    settings = settings_of(machine)
    found = {name: check(machine, settings) for name, check in CHECKS.items()}
    return {name: problem for name, problem in found.items() if problem}


def settings_of(machine: Machine) -> dict[str, t.Any]:
    """Return the settings; what cannot be read counts as none."""
    try:
        read_settings = json.loads(machine.text(SETTINGS) or "{}")
    except ValueError:
        return {}
    return read_settings if isinstance(read_settings, dict) else {}


def deadline_of(machine: Machine) -> float:
    """Return how many seconds after the kernel's start a trial ends."""
    value = settings_of(machine).get("deadline_seconds", DEADLINE_S)
    return float(value) if isinstance(value, int) and value > 0 else float(DEADLINE_S)
