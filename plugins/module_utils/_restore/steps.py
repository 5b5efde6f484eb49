# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The states of the module ``etcd_restore``: what each step looks at, and what it hands to the next one."""

from __future__ import annotations

import concurrent.futures
import json
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import (
    configuration,
    static_pods,
    store,
    survey,
    work,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.configuration import Configuration
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

Arguments = t.Mapping[str, t.Any]
Result = t.Dict[str, t.Any]
LATEST = "latest"
CLOSED = "/var/lib/ironspan/etcd-backup/closed.json"
"""etcd does not start while it is there: the backup's agent found its data older than the backup."""
REBUILT = "rebuilt"
"""Folder, in the one that a restore works in, that the backup program rebuilds a database in."""


def surveyed(machine: Machine, arguments: Arguments) -> Result:
    """Return what the host has."""
    return {"changed": False, **survey.survey(machine, arguments["point"], arguments["source"])}


def admitted(machine: Machine, arguments: Arguments) -> Result:
    """Refuse what would go wrong later; before that the database is rebuilt from the backup, if asked for.

    Raises:
        ProgramError: the backup does not lead to the point.
        RestoreError: the data and the backup are of different clusters, or there is not enough room.
    """
    own = _own(machine)
    if arguments["rebuild"]:
        work.take_over(machine, own)
        output = machine.path(f"{work.work_folder(own)}/{REBUILT}")
        machine.ask_backup("rebuild", "--point", arguments["point"], "--output", output)
    backup = facts(machine, own)
    data = survey.data_of(machine, own.data_dir)
    wants_survivor = takes_survivor(arguments)
    going_on = survey.survey(machine, arguments["point"], arguments["source"])["going_on"]
    if going_on or data is None or not data["cluster"] or not wants_survivor:
        data = None
    elif backup and data["cluster"] != backup["cluster_id"] and not arguments["force"]:
        raise RestoreError(
            f"{own.data_dir} holds data of cluster {data['cluster']}, and the backup is of cluster "
            f"{backup['cluster_id']}: their revisions cannot be compared.",
            "Say which to take: -e ironspan_source=backup or -e ironspan_source=survivor.",
        )
    size = _bytes(machine, backup) + 3 * (data["bytes"] if data else 0)
    store.insist_on_space(machine, own, size)
    return {"changed": bool(arguments["rebuild"])}


def stopped(machine: Machine, arguments: Arguments) -> Result:
    """Stop the programs of a control plane, and etcd, whose data are renamed."""
    begun = time.monotonic()
    changed = arguments["pods"] and static_pods.take_away(machine)
    aside = _put_aside(machine, arguments) if arguments["data"] else ""
    if arguments["pods"]:
        static_pods.wait_until_ended(machine, begun)
    return {"changed": changed or bool(aside), "aside": aside}


def _put_aside(machine: Machine, arguments: Arguments) -> str:
    """Stop etcd and rename its data; with a point, begin the restore on this host."""
    own = _own(machine)
    if arguments["point"]:
        store.begin(machine, own, arguments["point"], arguments["source"])
    else:
        # Another host rebuilds the store, whatever was begun here.
        machine.forget()
    record = machine.record()
    aside = store.set_aside(machine, own, arguments["keep_cluster"] or record.get("cluster", ""))
    # What the backup's agent closed etcd for is out of the way.
    machine.remove(CLOSED)
    return aside


def restored(machine: Machine, arguments: Arguments) -> Result:
    """Stop what uses the data, make others and serve them for this host only; nothing when that was done.

    It need not wait for other hosts that are being stopped: they are not served before all have ended.
    Meanwhile their backups get an epoch of their own: before anybody can write to them, they must have it.
    """
    ended = stopped(machine, arguments)
    own = _own(machine)
    record = machine.record()
    if not record.get("released"):
        if "bump" not in record:
            machine.remember(**_chosen(machine, own, arguments))
        record = machine.record()
        store.place(machine, own, record["snapshot"], record["bump"])
        record = machine.record()
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            epoch = beside.submit(_begin_epoch, machine, record)
            # An empty store is at revision 1 without any that could be raised.
            served = store.serve_alone(machine, record["revision"] + record["bump"] - 1)
            epoch.result()
        record = machine.remember(keys=served["keys"])
    names = ("source", "revision", "bump", "cluster", "keys", "backup", "epoch")
    return {**ended, "changed": not record.get("released"), **{name: record[name] for name in names}}


def _begin_epoch(machine: Machine, record: Result) -> None:
    """Let backups go on with the new cluster, and with no other; asked again, the program does nothing."""
    if machine.has_backup_program():
        machine.ask_backup(
            "new-epoch",
            f"--cluster-id={record['cluster']}",
            f"--snapshot={record['backup'] or record['source']}",
            f"--revision={record['revision']}",
            f"--bump-revision={record['bump']}",
        )


def served(machine: Machine, arguments: Arguments) -> Result:
    """Serve the store to all, and start the programs of a control plane, in order."""
    if arguments["pods"] and arguments["after"]:
        static_pods.wait_for_first(machine, arguments["after"])
    # The kubelet makes the API server's container while etcd starts. Not earlier: an API server that does not
    # find etcd asks again after a second, and then after ever more of them (gRPC, connection-backoff.md).
    pods = arguments["pods"] and static_pods.bring_back(machine, static_pods.API_SERVER)
    data = arguments["data"] and store.release(machine)
    started = arguments["pods"] and static_pods.start(machine)
    return {"changed": bool(pods or data or started)}


def finished(machine: Machine, arguments: Arguments) -> Result:
    """End the restore; what it worked with is deleted."""
    own = _own(machine)
    if machine.record().get("finished", True):
        return {"changed": False}
    store.clean(machine, own)
    machine.remember(finished=True)
    return {"changed": True}


def takes_survivor(arguments: Arguments) -> bool:
    """Tell whether data on this host may be what is restored."""
    return bool(arguments["source"] != "backup" and arguments["point"] == LATEST)


def facts(machine: Machine, own: Configuration) -> Result:
    """Return what the backup program says of the database that it rebuilt; empty when there is none."""
    path = f"{work.work_folder(own)}/{REBUILT}/facts.json"
    try:
        found = dict(json.loads(paths.read(machine.path(path))))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RestoreError(
            f"{path} is damaged: {error}.", "Remove its folder, and run this again."
        ) from error
    return {**found, "path": f"{work.work_folder(own)}/{REBUILT}/restored.db"}


def _chosen(machine: Machine, own: Configuration, arguments: Arguments) -> Result:
    """Return what is restored: the newer of the backup and the data that were here."""
    backup = {} if arguments["source"] == "survivor" else facts(machine, own)
    aside = str(machine.record().get("aside") or "")
    found: Result = {}
    held = survey.data_of(machine, aside) if aside and takes_survivor(arguments) else None
    if held and held["cluster"]:
        found = store.salvage(machine, own, aside)
    if not found and not backup:
        raise RestoreError("There is neither a rebuilt backup nor data on this host.", "Run this again.")
    survivor = not backup or int(found.get("revision", 0)) > int(backup["revision"])
    taken = found if survivor else backup
    revision = int(taken["revision"])
    seen = max(revision, int(backup.get("last_seen_revision", 0)))
    bump = max(store.bump_of(revision, seen), int(backup.get("bump", 0)))
    return {
        "source": "survivor" if survivor else "backup",
        "snapshot": taken["path"],
        "revision": revision,
        "bump": bump,
        "backup": str(backup.get("snapshot", "")),
        "epoch": int(backup.get("epoch", 0)),
    }


def _bytes(machine: Machine, backup: Result) -> int:
    return 2 * os.path.getsize(machine.path(backup["path"])) if backup else 0


def _own(machine: Machine) -> Configuration:
    own = configuration.read(machine)
    if own is None:
        raise RestoreError(
            f"{configuration.PATH} is missing: this host was never a member.", "Build it with site.yml first."
        )
    return own
