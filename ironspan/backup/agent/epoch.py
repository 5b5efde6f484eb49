# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which etcd cluster a store belongs to: an agent of any other cluster writes nothing."""

from __future__ import annotations

import dataclasses
import logging

from ironspan.backup import manifest
from ironspan.backup.catalogue import epoch_numbers, read_small, unsigned
from ironspan.backup.chain import last_seen
from ironspan.backup.errors import ChainError, WrongCluster
from ironspan.backup.manifest import Epoch, Restored
from ironspan.backup.names import Names
from ironspan.backup.store import Store
from ironspan.program.errors import AlreadyThere, NotThere, ServiceError

LOG = logging.getLogger(__name__)
_LAST = 999_999
_WAY_OUT = (
    "A restore by ironspan opens an epoch for the new cluster; for one that was made by hand, "
    "`ironspan backup accept` does. Another site needs another name or another store."
)


def newest(store: Store, names: Names) -> Epoch | None:
    """Return the newest epoch that the site signed, or None for a store without one.

    Raises:
        ServiceError: the store does not answer.
    """
    for number in reversed(epoch_numbers(store, names)):
        name = names.epoch(number)
        try:
            found = read_small(store, Epoch, name, names.proof)
        except NotThere:
            continue
        except ChainError as error:
            LOG.debug("%s", error)
            continue
        if found.epoch == number:
            return found
    return None


def put(store: Store, names: Names, cluster_id: str, created: int, restored: Restored | None) -> Epoch | None:
    """Write the epoch behind the newest one, under the first name that is free.

    Args:
        store: where to write.
        names: of the site.
        cluster_id: whose it is, hexadecimal.
        created: seconds since 1970.
        restored: what its data are; ``from_epoch`` is filled in here.

    Returns:
        The epoch; None where another one was written meanwhile, or our own first try did land: look again.

    Raises:
        ServiceError: the store failed, or has no name left.
    """
    last = newest(store, names)
    number = last.epoch if last else 0
    taken = set(epoch_numbers(store, names))
    while number < _LAST:
        number += 1
        if number in taken:
            continue
        if restored is not None:
            restored = dataclasses.replace(restored, from_epoch=last.epoch if last else number - 1)
        made = Epoch(number, cluster_id, created, restored)
        name = names.epoch(number)
        try:
            store.put(name, [manifest.dump(made, name, names.proof)])
        except AlreadyThere:
            return None
        return made
    raise ServiceError(f"{store.name} has no name left for an epoch: somebody took them all.")


def open_epoch(store: Store, names: Names, cluster_id: int, now: float, revision: int | None = None) -> Epoch:
    """Return the epoch that a cluster may write to; a store without a signed one gets one.

    Args:
        store: where to write.
        names: of the site.
        cluster_id: of the cluster, as every answer of etcd says it.
        now: seconds since 1970.
        revision: that etcd is at: what was written before objects were signed must not be beyond it.

    Raises:
        WrongCluster: the newest epoch belongs to another cluster, or what nobody signed seems to.
        ServiceError: the store does not answer.
    """
    found = newest(store, names)
    while found is None:
        _check_unsigned(store, names, cluster_id, revision)
        # Another agent may be faster: then what is there now counts.
        found = put(store, names, f"{cluster_id:x}", int(now), None) or newest(store, names)
    check(found, cluster_id, store)
    return found


def _check_unsigned(store: Store, names: Names, cluster_id: int, revision: int | None) -> None:
    """Raise WrongCluster where a store that was not signed yet says that this is not its cluster.

    It is the last time that anything unsigned is listened to, and all that comes of it is that an operator
    has to say which database is the right one.
    """
    found = unsigned(store, names)
    if not found.epochs:
        return
    last = found.epochs[-1]
    LOG.warning(
        "%s has %d epochs that nobody signed: they are kept, and restored only as unsigned:POINT",
        *(store.name, len(found.epochs)),
    )
    check(last, cluster_id, store)
    narrowed = dataclasses.replace(
        found, epochs=(last,), snapshots=tuple(one for one in found.snapshots if one.epoch == last.epoch)
    )
    if revision is not None and (seen := last_seen(store, narrowed)) > revision:
        raise WrongCluster(
            f"What {store.name} has unsigned, of epoch {last.epoch}, goes to revision {seen}, and etcd is at "
            f"{revision}: this database is older than its backup, or somebody wrote that.",
            "Restore the backup (unsigned:latest), or, if this database is the right one, begin an epoch for "
            "it with `ironspan backup accept`.",
        )


def check(epoch: Epoch, cluster_id: int, store: Store) -> None:
    """Raise WrongCluster unless the epoch is this cluster's."""
    if epoch.cluster_id != f"{cluster_id:x}":
        raise WrongCluster(
            f"The newest epoch {epoch.epoch} in {store.name} belongs to the etcd cluster {epoch.cluster_id}; "
            f"this one is {cluster_id:x}.",
            _WAY_OUT,
        )
