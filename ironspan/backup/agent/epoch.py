# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which etcd cluster a store belongs to: an agent of any other cluster writes nothing."""

from __future__ import annotations

from ironspan.backup import manifest
from ironspan.backup.catalogue import epoch_numbers
from ironspan.backup.errors import AlreadyThere, WrongCluster
from ironspan.backup.manifest import Epoch
from ironspan.backup.names import Names
from ironspan.backup.store import Store


def newest(store: Store, names: Names) -> Epoch | None:
    """Return the store's newest epoch, or None for an empty store.

    Raises:
        StoreError: the store does not answer.
        ChainError: the epoch is not what was written.
    """
    numbers = epoch_numbers(store, names)
    if not numbers:
        return None
    name = names.epoch(numbers[-1])
    return manifest.load(Epoch, b"".join(store.read(name)), name)


def open_epoch(store: Store, names: Names, cluster_id: int, now: float) -> Epoch:
    """Return the epoch that a cluster may write to; an empty store gets its first one.

    Args:
        store: where to write.
        names: of the site.
        cluster_id: of the cluster, as every answer of etcd says it.
        now: seconds since 1970.

    Raises:
        WrongCluster: the newest epoch belongs to another cluster.
        StoreError: the store does not answer.
    """
    found = newest(store, names)
    if found is None:
        found = Epoch(epoch=1, cluster_id=f"{cluster_id:x}", created=int(now))
        try:
            store.put(names.epoch(1), [manifest.dump(found)])
        except AlreadyThere:
            # Another agent was faster, or our own first try did land: what is there now counts.
            found = newest(store, names) or found
    check(found, cluster_id, store)
    return found


def check(epoch: Epoch, cluster_id: int, store: Store) -> None:
    """Raise WrongCluster unless the epoch is this cluster's."""
    if epoch.cluster_id != f"{cluster_id:x}":
        raise WrongCluster(
            f"The newest epoch {epoch.epoch} in {store.name} belongs to the etcd cluster {epoch.cluster_id}; "
            f"this one is {cluster_id:x}.",
            "A restore by ironspan opens an epoch for the new cluster; for one that was made by hand, "
            "`ironspan backup accept` does. Another site needs another name or another store.",
        )
