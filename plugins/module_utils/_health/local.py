# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host says of itself: disks, services, an unfinished transaction. Reads only."""

from __future__ import annotations

import json
import os
import subprocess
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import reboot_request
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

FOLDERS = ("/", "/var", "/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet", "/var/log")
JOURNAL = "/var/lib/ironspan/journal/open.jsonl"
CLOSED = "/var/lib/ironspan/etcd-backup/closed.json"
"""etcd does not start while it is there: the backup's agent found its database older than the backup."""
STRANGERS = "/var/lib/ironspan/etcd-backup/strangers.json"
"""The backup's agent that writes keeps it there while the store has objects that the site did not write."""
SLOTS = "/run/ironspan/slots.json"
"""The program of a disk with two roots writes it at each start (docs/images.md)."""
REBOOT_FILE = "/run/reboot-required"
PROGRAM_SECONDS = 10


def disks(root: str) -> t.List[t.Dict[str, t.Any]]:
    """Return free and all bytes and inodes of the file systems that matter, each once.

    Args:
        root: the host's root folder.
    """
    seen: t.Set[int] = set()
    found = []
    for folder in FOLDERS:
        path = root.rstrip("/") + folder
        try:
            device = os.stat(path).st_dev
            status = os.statvfs(path)
        except OSError:
            continue
        if device in seen or not status.f_blocks:
            continue
        seen.add(device)
        found.append(
            {
                "path": folder,
                "bytes": status.f_blocks * status.f_frsize,
                "free_bytes": status.f_bavail * status.f_frsize,
                "inodes": status.f_files,
                "free_inodes": status.f_favail,
                "read_only": bool(status.f_flag & os.ST_RDONLY),
            }
        )
    return found


def parse_units(text: str) -> t.Dict[str, t.Dict[str, str]]:
    """Return the properties that ``systemctl show`` printed, by unit, of those that exist."""
    units = {}
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("LoadState") == "loaded":
            units[values.get("Id", "")] = {
                "active": values.get("ActiveState", ""),
                "sub": values.get("SubState", ""),
                "result": values.get("Result", ""),
                "restarts": values.get("NRestarts", "0"),
            }
    return units


def output(argv: t.Sequence[str]) -> str:
    """Return what a program prints, whatever becomes of it; empty when it cannot be run."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROGRAM_SECONDS,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def units(names: t.Sequence[str]) -> t.Dict[str, t.Dict[str, str]]:
    """Return the state of those of some services that exist, by unit."""
    if not names:
        return {}
    properties = "--property=Id,LoadState,ActiveState,SubState,Result,NRestarts"
    return parse_units(output(["systemctl", "show", properties, "--", *names]))


def failed_units() -> t.List[str]:
    """Return the names of all units that failed."""
    text = output(["systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager"])
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def transaction(root: str) -> t.Dict[str, t.Any]:
    """Return since when a transaction of the engine has been open, and its plan; empty when none is.

    One that is on trial is open on purpose: ``trial_until`` (Unix time) says how long.

    Args:
        root: the host's root folder.
    """
    path = root.rstrip("/") + JOURNAL
    try:
        lines = paths.text(path).splitlines()
        since = os.stat(path).st_mtime
    except OSError:
        return {}
    if not lines:
        return {}
    found: t.Dict[str, t.Any] = {"seconds": round(max(0.0, time.time() - since)), "steps": len(lines)}
    found["plan"] = str(_record(lines[0]).get("plan") or "")
    for line in lines:
        if '"tried"' in line and _record(line).get("step") == "tried":
            found["trial_until"] = (_record(line).get("trial") or {}).get("until")
    return found


def slots(root: str) -> t.Dict[str, t.Any]:
    """Return which slot of a disk with two roots runs, which one is good, and why one failed; empty without.

    Args:
        root: the host's root folder.
    """
    try:
        found = _record(paths.text(root.rstrip("/") + SLOTS))
    except OSError:
        return {}
    bad = found.get("bad")
    reasons = {str(slot): str(why) for slot, why in bad.items() if why} if isinstance(bad, dict) else {}
    return (
        {**{key: str(found.get(key) or "") for key in ("slot", "good", "trial")}, "bad": reasons}
        if found
        else {}
    )


def _record(line: str) -> t.Dict[str, t.Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def collect(root: str, names: t.Sequence[str] = ()) -> t.Dict[str, t.Any]:
    """Return all of it.

    Args:
        root: the host's root folder; services are asked for only where it is the real one.
        names: services whose state is told.
    """
    real = root == "/"
    return {
        "disks": disks(root),
        "units": units(names) if real else {},
        "failed_units": failed_units() if real else [],
        "transaction": transaction(root),
        "slots": slots(root),
        "etcd_closed": os.path.exists(root.rstrip("/") + CLOSED),
        "backup_strangers": os.path.exists(root.rstrip("/") + STRANGERS),
        "reboot_wanted": os.path.exists(root.rstrip("/") + REBOOT_FILE),
        "reboots": [
            request["reason"] for request in reboot_request.requests(root.rstrip("/") + reboot_request.FOLDER)
        ],
    }
