# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host of the store has, found out without a quorum and without changing anything."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.etcd_member import (
    _fields,
    identity,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import configuration, static_pods
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.configuration import Configuration
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

STATE = 3
"""Type of the record in a write-ahead log that says how far the member is (etcd, server/storage/wal)."""
PROGRAMS = ("etcd", "etcdctl", "etcdutl")


def records(log: bytes) -> t.Iterator[t.Tuple[int, bytes]]:
    """Yield type and content of the records of a write-ahead log's file, up to its torn or unused end."""
    at = 0
    while at + 8 <= len(log):
        # A frame: size in 56 bits, then the number of bytes of padding with its highest bit set.
        head = int.from_bytes(log[at : at + 8], "little")
        size, padding = head & ((1 << 56) - 1), (head >> 56) & 7 if head >> 63 else 0
        if not size or at + 8 + size > len(log):
            return
        found = _message(log[at + 8 : at + 8 + size])
        kind, content = found.get(1), found.get(3)
        if isinstance(kind, int) and isinstance(content, bytes):
            yield kind, content
        at += 8 + size + padding


def commit_index(log: bytes) -> int:
    """Return the last commit index that a write-ahead log's file tells, 0 when it tells none."""
    commits = [_message(content).get(3) for kind, content in records(log) if kind == STATE]
    # etcd begins each file with the state at that moment.
    return max((commit for commit in commits if isinstance(commit, int)), default=0)


def _message(data: bytes) -> t.Dict[int, t.Any]:
    """Return the fields of a protobuf message by number; none of one that is damaged."""
    try:
        return dict(_fields(data))
    except IndexError:
        return {}


def data_of(machine: Machine, folder: str) -> t.Optional[t.Dict[str, t.Any]]:
    """Return whose data a folder holds, how far they reach and their size; None when it holds none.

    A member that was started without data has left a folder that belongs to no cluster.

    Args:
        machine: the host.
        folder: etcd's ``data-dir``.
    """
    if not paths.is_folder(machine.path(os.path.join(folder, "member"))):
        return None
    logs = machine.path(os.path.join(folder, "member", "wal"))
    names = sorted(name for name in _names(logs) if name.endswith(".wal"))
    whose: t.Dict[str, t.Any] = {}
    commit = 0
    if names:
        log = paths.read(os.path.join(logs, names[-1]))
        whose, commit = identity(log[:4096]), commit_index(log)
    database = machine.path(os.path.join(folder, "member", "snap", "db"))
    held = paths.status(database)
    size = held.st_size if held else 0
    return {
        "cluster": whose.get("cluster", ""),
        "member": whose.get("member", ""),
        "commit": commit,
        "bytes": size,
    }


def survey(machine: Machine, point: str, source: str) -> t.Dict[str, t.Any]:
    """Return what this host has to do with the store and with its restore.

    Args:
        machine: the host.
        point: what is going to be restored.
        source: where it is going to come from.
    """
    record = machine.record()
    unfinished = not record.get("finished", True)
    same = (record.get("point"), record.get("asked")) == (point, source)
    found: t.Dict[str, t.Any] = {
        "configured": False,
        "backup": machine.has_backup_program(),
        "unfinished": unfinished,
        # Of this very restore, which was begun on this host.
        "going_on": record if unfinished and same else {},
        "pods": static_pods.present(machine),
        "problems": [],
        "data": None,
    }
    own = configuration.read(machine)
    if own is not None:
        found.update(_of_member(machine, own))
    return found


def _of_member(machine: Machine, own: Configuration) -> t.Dict[str, t.Any]:
    parent = machine.path(os.path.dirname(own.data_dir))
    status = os.statvfs(parent)
    programs = machine.path("/usr/local/bin")
    problems = [f"{name} is missing in /usr/local/bin" for name in PROGRAMS if name not in _names(programs)]
    if os.path.ismount(machine.path(own.data_dir)):
        problems.append(
            f"{own.data_dir} is a mount point, so data cannot be moved aside: mount that disk at "
            f"{os.path.dirname(own.data_dir)}"
        )
    return {
        "configured": True,
        "url": own.peer_url.rpartition(":")[0],
        "data_dir": own.data_dir,
        "free_bytes": status.f_bavail * status.f_frsize,
        "problems": problems,
        "data": data_of(machine, own.data_dir),
    }


def _names(folder: str) -> t.List[str]:
    try:
        return paths.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
