# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``new-epoch``: after a restore the store belongs to the new etcd cluster, and to no other."""

from __future__ import annotations

import argparse
import re
import time
import typing as t

from ironspan.program.errors import ProgramError

if t.TYPE_CHECKING:
    from ironspan.backup.manifest import Epoch, Restored
    from ironspan.backup.names import Names
    from ironspan.backup.settings import Settings
    from ironspan.backup.store import Store

_CLUSTER = re.compile(r"[0-9a-f]{1,16}")


def add_commands(subparsers: t.Any) -> None:
    """Add ``new-epoch``."""
    command = subparsers.add_parser("new-epoch", help="let backups go on with the cluster that was restored")
    command.add_argument("--cluster-id", required=True, help="of the new cluster, hexadecimal")
    command.add_argument("--snapshot", required=True, help="what was restored")
    command.add_argument("--revision", required=True, type=int, help="the last one that was restored")
    command.add_argument("--bump-revision", required=True, type=int, help="by how much they were raised")
    command.set_defaults(func=_new_epoch)


def begin(store: Store, names: Names, cluster_id: str, restored: Restored, now: float) -> Epoch:
    """Write the next epoch, unless the newest one is that of this very restore.

    The cluster may be that of the newest epoch: its database was put back by other means, and it goes on.

    Args:
        store: the store.
        names: of the site.
        cluster_id: of the restored cluster, hexadecimal.
        restored: what its data are; ``from_epoch`` is filled in here.
        now: seconds since 1970.

    Returns:
        The newest epoch, which is that of the restore.

    Raises:
        ProgramError: the id is none, or an epoch cannot be read.
        ServiceError: the store failed; calling again is safe.
    """
    import dataclasses

    from ironspan.backup.agent.epoch import newest, put

    if not _CLUSTER.fullmatch(cluster_id):
        raise ProgramError(
            f"{cluster_id!r} is no id of a cluster.", "Write it in hexadecimal, as etcd's log does."
        )
    while True:
        last = newest(store, names)
        if last and last.restored:
            same = dataclasses.replace(restored, from_epoch=last.restored.from_epoch)
            if (last.cluster_id, last.restored) == (cluster_id, same):
                return last
        # None after an answer that was lost, or beside another run: the next look tells.
        if made := put(store, names, cluster_id, int(now), restored):
            return made


def _new_epoch(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup.manifest import Restored
    from ironspan.backup.stores import names_of, open_store
    from ironspan.program.command import answer

    restored = Restored(arguments.snapshot, arguments.revision, arguments.bump_revision, 0)
    store, names = open_store(settings.stores[0]), names_of(settings)
    epoch = begin(store, names, arguments.cluster_id, restored, time.time())
    found = {"epoch": epoch.epoch, "cluster_id": epoch.cluster_id}
    answer(arguments, found, f"epoch {epoch.epoch} belongs to cluster {epoch.cluster_id}")
