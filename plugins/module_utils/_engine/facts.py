# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The few facts that the controller wants of a host. Reads only, no program is run."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import reboot_request
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host

CONTAINER_FILE = "/run/systemd/container"


def read(host: Host, path: str) -> str:
    """Return a file's text, "" when it cannot be read.

    Args:
        host: the host.
        path: absolute path.
    """
    try:
        with open(host.path(path), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def parse_release(text: str) -> t.Dict[str, str]:
    """Return id and version of /etc/os-release; "" for what it does not say."""
    values = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values[key.strip()] = value.strip().strip("\"'")
    return {"id": values.get("ID", ""), "version": values.get("VERSION_ID", "")}


def memory_bytes(text: str) -> int:
    """Return MemTotal of /proc/meminfo in bytes, 0 if it is not stated."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def default_interface(text: str) -> str:
    """Return the interface of /proc/net/route's default route with the lowest metric, "" without one."""
    best = (1 << 32, "")
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 8 and fields[1] == "00000000" and fields[7] == "00000000" and fields[6].isdigit():
            best = min(best, (int(fields[6]), fields[0]))
    return best[1]


def cgroup_version(host: Host) -> int:
    """Return 2 for the unified hierarchy, 1 for the older ones (the mixed layout included), 0 for none."""
    if os.path.exists(host.path("/sys/fs/cgroup/cgroup.controllers")):
        return 2
    return 1 if os.path.isdir(host.path("/sys/fs/cgroup/memory")) else 0


def collect(host: Host) -> t.Dict[str, t.Any]:
    """Return the facts: names, sizes in bytes, times in seconds.

    Args:
        host: the host.
    """
    interface = default_interface(read(host, "/proc/net/route"))
    mtu = read(host, f"/sys/class/net/{interface}/mtu").strip() if interface else ""
    uptime = read(host, "/proc/uptime").split()
    return {
        "hostname": read(host, "/proc/sys/kernel/hostname").strip() or read(host, "/etc/hostname").strip(),
        "machine_id": read(host, "/etc/machine-id").strip(),
        "boot_id": read(host, "/proc/sys/kernel/random/boot_id").strip(),
        "kernel": read(host, "/proc/sys/kernel/osrelease").strip() or platform.release(),
        "arch": os.uname().machine,
        "os": parse_release(read(host, "/etc/os-release")),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "cpus": os.cpu_count() or 1,
        "memory_bytes": memory_bytes(read(host, "/proc/meminfo")),
        "disk_free_bytes": _free_bytes(host),
        "cgroup_version": cgroup_version(host),
        "default_mtu": int(mtu) if mtu.isdigit() else 0,
        "swap_on": len(read(host, "/proc/swaps").splitlines()) > 1,
        "container": read(host, CONTAINER_FILE).strip(),
        "time_unix": time.time(),
        "reboots": reboot_request.requests(host.path(reboot_request.FOLDER)),
        "uptime_s": float(uptime[0]) if uptime else 0.0,
    }


def _free_bytes(host: Host) -> int:
    path = host.path("/var")
    try:
        status = os.statvfs(path if os.path.isdir(path) else host.path("/"))
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
