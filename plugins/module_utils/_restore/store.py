# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sets a member's data aside, makes others in their place, and serves them: first for this host only.

Old data are renamed, never deleted. The new ones are made beside their place and renamed into it, under a
cluster id that no old member has: the token that it is made from is random.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import Store
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.etcd_member import NOTE
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import configuration
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.configuration import (
    UNIT,
    Configuration,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.survey import data_of
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.work import (
    give_tree,
    owner,
    take_over,
    work_folder,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths

BUMP = 1_000_000_000
"""By how much revisions are raised at least, as OpenShift does; 20 % of the last revision if that is more."""
MASTER_LEASES = "/registry/masterleases/"
"""Addresses of API servers that were alive before; the living write theirs again within seconds."""
_MARGIN = 1 << 28
"""Bytes that stay free on the disk: a full one stops the member."""
_FIELD = re.compile(r'^"(\w+)" : (\d+)$', re.MULTILINE)


def bump_of(revision: int, last_seen: int) -> int:
    """Return by how much revisions are raised, so that none that a client ever saw comes again.

    Args:
        revision: the last one that is restored.
        last_seen: the last one that anybody is known to have seen.
    """
    return max(BUMP, last_seen // 5) + max(0, last_seen - revision)


def insist_on_space(machine: Machine, own: Configuration, size: int) -> None:
    """Refuse to fill the disk.

    Args:
        machine: the host.
        own: its configuration.
        size: bytes that are going to be written beside the data.

    Raises:
        RestoreError: there is not enough room.
    """
    parent = os.path.dirname(own.data_dir)
    status = os.statvfs(machine.path(parent))
    free, needed = status.f_bavail * status.f_frsize, size + _MARGIN
    if free < needed:
        raise RestoreError(
            f"{parent} has {free >> 20} MiB free, and the restore needs {needed >> 20} MiB.",
            "Make room, and run this again; data that were set aside can be moved to another disk.",
        )


def begin(machine: Machine, own: Configuration, point: str, source: str) -> None:
    """Begin a restore on this host, or go on with the same one that is not finished.

    One that was begun with other arguments, and that nobody was served from, leaves the data that it set
    aside to this one.

    Args:
        machine: the host, on which the store is going to be restored.
        own: its configuration.
        point: what is going to be restored.
        source: where it is going to come from.
    """
    record = machine.record()
    if record.get("finished", True) or (record["point"], record["asked"]) != (point, source):
        served = record.get("finished", True) or record.get("released")
        kept = {} if served or not record.get("aside") else {"aside": record["aside"]}
        for name in ("data", "salvaged", "salvaged.db", "salvaged.json"):
            machine.remove(f"{work_folder(own)}/{name}")
        machine.replace({"point": point, "asked": source, "finished": False, **kept})
    take_over(machine, own)


def set_aside(machine: Machine, own: Configuration, keep: str) -> str:
    """Stop etcd and move its data out of the way; returns where they are, "" when there were none to move.

    Args:
        machine: the host.
        own: its configuration.
        keep: a cluster id whose data stay and go on serving: those that were restored already.
    """
    data = data_of(machine, own.data_dir)
    if data is not None and keep and data["cluster"] == keep:
        return ""
    _stop_at_once(machine)
    configuration.straighten(machine)
    if data is None:
        return ""
    aside = _free_name(machine, f"{own.data_dir}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    record = machine.record()
    if record and not os.path.exists(machine.path(str(record.get("aside", "/none")))):
        machine.remember(aside=aside)
    machine.rename(own.data_dir, aside)
    return aside


def _free_name(machine: Machine, wanted: str) -> str:
    """Return ``wanted``, or with a number after it when data were set aside in the same second before."""
    names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not os.path.exists(machine.path(name)))


def _stop_at_once(machine: Machine) -> None:
    """End etcd without giving it the seconds in which it waits for its clients: they are stopped too."""
    machine.run("systemctl", "stop", "--no-block", UNIT)
    try:
        machine.run("systemctl", "kill", "--signal=SIGKILL", UNIT)
    except RestoreError:
        # It had ended.
        pass
    machine.run("systemctl", "stop", UNIT)


def _start(machine: Machine, verb: str) -> None:
    """Start etcd however often it was started before.

    With lost data it ends at once, again and again, and systemd refuses the sixth start within ten seconds
    (systemd.unit(5), StartLimitBurst).
    """
    try:
        machine.run("systemctl", "reset-failed", UNIT)
    except RestoreError:
        # A unit that systemd has not loaded has no count either.
        pass
    machine.run("systemctl", verb, UNIT)


def salvage(machine: Machine, own: Configuration, aside: str) -> t.Dict[str, t.Any]:
    """Take a snapshot of data that have lost their quorum, from a copy of them.

    The copy is started as a cluster of one, so that what is only in the write-ahead log counts too.

    Args:
        machine: the host.
        own: its configuration.
        aside: where the data are.

    Returns:
        ``path`` of the snapshot and its ``revision``.

    Raises:
        RestoreError: etcd does not start with these data.
    """
    folder = work_folder(own)
    facts = f"{folder}/salvaged.json"
    if os.path.exists(machine.path(facts)):
        return dict(json.loads(paths.read(machine.path(facts))))
    copy, snapshot = f"{folder}/salvaged", f"{folder}/salvaged.db"
    machine.run("systemctl", "stop", UNIT)
    machine.remove(copy)
    machine.run("cp", "-a", "--reflink=auto", machine.path(aside), machine.path(copy))
    configuration.divert(machine, own.alone(copy))
    try:
        _start(machine, "start")
        served = _served(machine)
        machine.run("etcdctl", "snapshot", "save", machine.path(snapshot), environment=_settings(machine))
    except RestoreError as error:
        raise RestoreError(
            f"The data in {aside} cannot be used: {error}",
            "Look at 'journalctl -u etcd'. With -e ironspan_source=backup the backup alone is restored.",
        ) from error
    finally:
        machine.run("systemctl", "stop", UNIT)
        configuration.straighten(machine)
    found = {"path": snapshot, "revision": served["revision"]}
    machine.crash.reach()
    files.write_atomically(machine.path(facts), json.dumps(found).encode(), 0o600)
    machine.remove(copy)
    return found


def place(machine: Machine, own: Configuration, snapshot: str, bump: int) -> None:
    """Make data from a snapshot and put them where etcd's data belong, to be served for this host only.

    Args:
        machine: the host.
        own: its configuration.
        snapshot: path of a snapshot with its checksum.
        bump: by how much revisions are raised.
    """
    record = machine.record()
    present = data_of(machine, own.data_dir)
    if present is not None and present["cluster"] and present["cluster"] == record.get("cluster"):
        configuration.divert(machine, own.quarantined())
        _know_whose(machine, present)
        return
    folder = f"{work_folder(own)}/data"
    insist_on_space(machine, own, os.path.getsize(machine.path(snapshot)))
    machine.remove(folder)
    machine.run(
        "etcdutl", "snapshot", "restore", machine.path(snapshot),
        "--name", own.name,
        "--initial-cluster", f"{own.name}={own.peer_url}",
        "--initial-advertise-peer-urls", own.peer_url,
        "--initial-cluster-token", f"ironspan-{secrets.token_hex(16)}",
        "--data-dir", machine.path(folder),
        "--bump-revision", str(bump),
        "--mark-compacted",
    )  # fmt: skip
    give_tree(machine.path(folder), owner(machine))
    made = data_of(machine, folder)
    if not made or not made["cluster"]:
        raise RestoreError("etcdutl made no data.", "Run this again.")
    machine.remember(cluster=made["cluster"], member=made["member"], bump=bump)
    # Before the data are where a reboot would start them.
    configuration.divert(machine, own.quarantined())
    machine.rename(folder, own.data_dir)
    _know_whose(machine, made)


def serve_alone(machine: Machine, least_revision: int) -> t.Dict[str, t.Any]:
    """Start etcd with what was placed, look at what it serves, and take stale leases of API servers out.

    Args:
        machine: the host.
        least_revision: the store is refused below it.

    Returns:
        ``cluster``, ``member``, ``revision``, and ``keys``, the number of all keys.

    Raises:
        RestoreError: it does not start, or does not serve what was restored.
    """
    _start(machine, "restart")
    served = _served(machine)
    if served["cluster"] != machine.record()["cluster"] or served["revision"] < least_revision:
        raise RestoreError(
            f"etcd serves revision {served['revision']} of cluster {served['cluster']}, and not at least "
            f"revision {least_revision} of cluster {machine.record()['cluster']}.",
            "It stays closed to all but this host. Look at 'journalctl -u etcd'.",
        )
    machine.run("etcdctl", "del", "--prefix", MASTER_LEASES, environment=_settings(machine))
    return served


def release(machine: Machine) -> bool:
    """Let everybody talk to etcd; returns whether it was closed."""
    straightened = configuration.straighten(machine)
    if straightened or not machine.record().get("released"):
        _start(machine, "restart")
        machine.remember(released=True)
    return straightened


def clean(machine: Machine, own: Configuration) -> None:
    """Delete what a restore that is over worked with; the data that were set aside stay."""
    machine.remove(work_folder(own))


def _served(machine: Machine) -> t.Dict[str, t.Any]:
    """Ask etcd what it serves, by a read that it answers once it has a leader."""
    count = ("etcdctl", "get", "", "--from-key", "--count-only", "--write-out=fields")
    fields = dict(_FIELD.findall(machine.run(*count, environment=_settings(machine))))
    return {
        "cluster": f"{int(fields['ClusterID']):x}",
        "member": f"{int(fields['MemberID']):x}",
        "revision": int(fields["Revision"]),
        "keys": int(fields["Count"]),
    }


def _settings(machine: Machine) -> t.Dict[str, str]:
    lines = paths.text(machine.path(configuration.CLIENT_SETTINGS)).splitlines()
    return dict(_pair(line) for line in lines if "=" in line and not line.startswith("#"))


def _pair(line: str) -> t.Tuple[str, str]:
    name, _, value = line.strip().partition("=")
    return name, value


def _know_whose(machine: Machine, data: t.Mapping[str, t.Any]) -> None:
    """Tell the engine whose data these are; it refuses to touch a member with another's."""
    kept = Store(machine.root, machine.crash)
    kept.lock(writing=True)
    try:
        state = kept.load()
        state.notes[NOTE + configuration.PATH] = {"member": data["member"], "cluster": data["cluster"]}
        kept.save(state)
    finally:
        kept.unlock()
