# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a host fits its document. Every verdict says what was found, what is wanted, and what to do."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.facts import read
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host

Verdict = t.Dict[str, t.Any]

LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp (TCP_LISTEN of the kernel's tcp_states.h)."""
GIB = 1 << 30
LOOKS = 3
"""How often a socket without a process is looked for: one that starts and fails every two seconds, as an etcd
that lost its data, has often ended between the look at sockets and that at processes."""


def verdict(check: str, ok: bool, found: t.Any, wanted: t.Any, remedy: str) -> Verdict:
    """Return one verdict; a good one needs no remedy."""
    return {"check": check, "ok": ok, "found": found, "wanted": wanted, "remedy": "" if ok else remedy}


def version_tuple(text: str) -> t.Tuple[int, ...]:
    """Return the leading numbers of a version: "6.12.48-amd64" gives (6, 12, 48)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def parse_listeners(text: str) -> t.Dict[int, t.Set[str]]:
    """Read /proc/net/tcp or tcp6.

    Args:
        text: the file's text.

    Returns:
        port -> inodes of the sockets that listen on it. Lines of another form are skipped.
    """
    listeners: t.Dict[int, t.Set[str]] = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        try:
            port = int(fields[1].rpartition(":")[2], 16)
        except ValueError:
            continue
        listeners.setdefault(port, set()).add(fields[9])
    return listeners


def socket_owners(host: Host, inodes: t.Collection[str]) -> t.Dict[str, str]:
    """Find the names of the processes that hold sockets.

    Args:
        host: the host.
        inodes: the sockets' inodes.

    Returns:
        inode -> process name, at most 15 characters as the kernel keeps it; sockets of nobody are left out.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: t.Dict[str, str] = {}
    processes = host.path("/proc")
    for process in os.listdir(processes) if os.path.isdir(processes) else []:
        if not process.isdigit():
            continue
        folder = os.path.join(processes, process, "fd")
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                inode = wanted.get(os.readlink(os.path.join(folder, descriptor)))
            except OSError:
                continue
            name = read(host, f"/proc/{process}/comm").strip() if inode is not None else ""
            if inode is not None and name:
                owners[inode] = name
        if len(owners) == len(wanted):
            break
    return owners


def judge(wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any], host: Host) -> t.List[Verdict]:
    """Judge a host.

    Args:
        wanted: the document's ``fitness``; every part of it may be absent.
        facts: of ``facts.collect``.
        host: the host.

    Returns:
        One verdict for each thing asked for, good ones included.
    """
    verdicts = [check for check in (_kernel(wanted, facts), _cgroup(wanted, facts)) if check]
    verdicts += _sizes(wanted, facts)
    verdicts += _ports(wanted.get("ports_free") or [], host)
    verdicts += [_file(entry, host) for entry in wanted.get("files") or []]
    for entry in wanted.get("foreign") or []:
        path = entry["path"]
        there = os.path.lexists(host.path(path)) and not host.owned(path)
        verdicts.append(
            verdict(
                f"foreign {path}",
                not there,
                "there, and not put there by ironspan" if there else "nothing foreign",
                "absent",
                f"{entry.get('why') or 'It would be in the way'}: remove {path} and what it belongs to, "
                "or start from a fresh host.",
            )
        )
    return verdicts


def _kernel(wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> t.Optional[Verdict]:
    least = wanted.get("min_kernel")
    if not least:
        return None
    ok = version_tuple(facts["kernel"]) >= version_tuple(str(least))
    return verdict("kernel", ok, facts["kernel"], f">= {least}", "Install a newer kernel and boot it.")


def _cgroup(wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> t.Optional[Verdict]:
    versions = wanted.get("cgroup_versions")
    if not versions:
        return None
    return verdict(
        "cgroup version",
        facts["cgroup_version"] in versions,
        facts["cgroup_version"],
        versions,
        "Boot with systemd.unified_cgroup_hierarchy=1 for version 2.",
    )


def _sizes(wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> t.List[Verdict]:
    sizes = (
        ("min_cpus", "cpus", "cpus", "Give the host more processors."),
        ("min_memory_bytes", "memory_bytes", "memory", "Give the host more memory."),
        ("min_disk_bytes", "disk_free_bytes", "disk space below /var", "Free or add space below /var."),
    )
    verdicts = []
    for limit, fact, check, remedy in sizes:
        if wanted.get(limit):
            show = str if limit == "min_cpus" else _gib
            ok = facts[fact] >= wanted[limit]
            verdicts.append(verdict(check, ok, show(facts[fact]), f">= {show(wanted[limit])}", remedy))
    return verdicts


def _ports(entries: t.Sequence[t.Mapping[str, t.Any]], host: Host) -> t.List[Verdict]:
    if not entries:
        return []
    users = _users({entry["port"] for entry in entries}, host)
    verdicts = []
    for entry in entries:
        port, allowed = entry["port"], list(entry.get("allowed_process") or [])
        names = sorted(users.get(port, ()))
        # The kernel cuts a process's name after 15 characters.
        strangers = [name for name in names if name not in {other[:15] for other in allowed}]
        wanted = "free" + (f", or used by {' or '.join(allowed)}" if allowed else "")
        verdicts.append(
            verdict(
                f"port {port}",
                not strangers,
                f"used by {', '.join(names)}" if names else "free",
                wanted,
                f"Stop {', '.join(strangers)} on this host, or move it to another port.",
            )
        )
    return verdicts


def _users(ports: t.Collection[int], host: Host) -> t.Dict[int, t.Set[str]]:
    """Return the names of the processes that listen at ports, for those that are in use."""
    for left in reversed(range(LOOKS)):
        listeners = parse_listeners(read(host, "/proc/net/tcp"))
        for port, inodes in parse_listeners(read(host, "/proc/net/tcp6")).items():
            listeners.setdefault(port, set()).update(inodes)
        taken = {port: listeners[port] for port in ports if port in listeners}
        # Looking through every process is dear: only if one of the ports is in use.
        sockets = set().union(*taken.values())
        owners = socket_owners(host, sockets) if taken else {}
        if not left or len(owners) == len(sockets):
            break
    return {
        port: {owners.get(inode, "an unknown process") for inode in inodes} for port, inodes in taken.items()
    }


def _file(entry: t.Mapping[str, str], host: Host) -> Verdict:
    """Judge whether a file is there and, with ``match``, has a text that this regular expression finds."""
    there = os.path.exists(host.path(entry["path"]))
    text = read(host, entry["path"]).strip() if "match" in entry else ""
    ok = there and re.search(entry.get("match", ""), text) is not None
    found = text[:200] or ("there" if there else "absent")
    return verdict(entry["what"], ok, found, entry["wanted"], entry["remedy"])


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
