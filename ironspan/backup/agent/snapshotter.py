# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes snapshots: streamed from a member through encryption into the store, nothing on this host's disk."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator

from ironspan.backup import crypto, manifest, objects
from ironspan.backup.agent import epoch as epochs
from ironspan.backup.agent.database import DatabaseReader
from ironspan.backup.manifest import Epoch, Manifest
from ironspan.backup.names import Names, parse_snapshot_id, snapshot_id
from ironspan.backup.store import Store
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Compacted, EtcdError

LOG = logging.getLogger(__name__)
_TRAILER_BYTES = 32
_SECTOR_BYTES = 512
_HASH_SECONDS = 300.0


class SnapshotError(EtcdError):
    """What a member delivered is not a whole snapshot."""


class Checked:
    """A stream that ends with an error unless it is a snapshot with its SHA-256 behind it.

    The digest, the size and the revision are known once it was iterated to its end. etcd's file is a
    multiple of 512 bytes, and etcd appends the SHA-256 of all before (server/etcdserver/api/v3rpc).
    """

    def __init__(self, chunks: Iterable[bytes], source: str) -> None:
        self._chunks = chunks
        self._source = source
        self.size = 0
        self.sha256 = ""
        self.revision = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the stream's bytes.

        Raises:
            EtcdError: it was cut, or bytes of it are not what etcd sent.
        """
        plain, whole, reader = hashlib.sha256(), hashlib.sha256(), DatabaseReader()
        tail = b""
        for chunk in self._chunks:
            whole.update(chunk)
            self.size += len(chunk)
            tail += chunk
            body, tail = tail[:-_TRAILER_BYTES], tail[-_TRAILER_BYTES:]
            plain.update(body)
            reader.feed(body)
            yield chunk
        if self.size % _SECTOR_BYTES != _TRAILER_BYTES or tail != plain.digest():
            raise SnapshotError(
                f"{self._source}: the snapshot of {self.size} bytes is cut or damaged, "
                "its SHA-256 does not fit.",
                "Another member is asked.",
            )
        self.revision = reader.revision()
        self.sha256 = whole.hexdigest()


class Snapshotter:
    """Takes snapshots of one cluster into one store.

    Args:
        client: of the cluster.
        store: where they go.
        keys: wrap a data key for each.
        names: of the site.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        client: EtcdClient,
        store: Store,
        keys: crypto.Keys,
        names: Names,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._store = store
        self._keys = keys
        self._names = names
        self._clock = clock

    def take(self, epoch: Epoch, least: int = 0) -> tuple[str, Manifest]:
        """Take one snapshot, from the first member that delivers one.

        Args:
            epoch: the store's newest.
            least: the revision before the log's first; a member that is behind it is not asked, because
                nothing would lead from its snapshot into the log.

        Returns:
            Its identifier, and the manifest that commits it; without it nobody sees the snapshot.

        Raises:
            EtcdError: no member delivered a whole snapshot.
            ServiceError: the store did not take it.
            WrongCluster: a member is of another cluster than the epoch.
        """
        problem: EtcdError | None = None
        for endpoint in self._by_preference():
            try:
                return self._take_from(endpoint, epoch, least)
            except EtcdError as error:
                LOG.warning("No snapshot from %s: %s", endpoint, error)
                problem = error
        raise problem or EtcdError("no etcd member answers.", "See to the cluster first.")

    def _by_preference(self) -> list[str]:
        """Return the members that answer, those first that do not lead: reading a database costs them."""
        followers: list[str] = []
        leaders: list[str] = []
        for endpoint in self._client.endpoints:
            try:
                status = self._client.status(endpoint)
            except EtcdError as error:
                LOG.warning("%s", error)
                continue
            (leaders if status.leader == status.header.member_id else followers).append(endpoint)
        return followers + leaders

    def _take_from(self, endpoint: str, epoch: Epoch, least: int) -> tuple[str, Manifest]:
        status = self._client.status(endpoint)
        epochs.check(epoch, status.header.cluster_id, self._store)
        if status.isLearner or status.header.revision < least:
            raise EtcdError(f"{endpoint}: the member is behind its cluster.", endpoint=endpoint)
        data_key = crypto.new_data_key()
        key_version, wrapped_key = self._keys.wrap(data_key)
        # The manifest has the true revision, known at the stream's end; the one in the name is not above it.
        identifier, created = self._free_name(epoch, status.header.revision)
        name = self._names.snapshot_data(epoch.epoch, identifier)
        checked = Checked(self._client.snapshot(endpoint), endpoint)
        self._store.put(name, crypto.encrypt(checked, data_key, name))
        compact_revision, hashkv, counts = self._evidence(endpoint, checked.revision)
        taken = Manifest(
            site=self._names.site,
            epoch=epoch.epoch,
            cluster_id=epoch.cluster_id,
            revision=checked.revision,
            compact_revision=compact_revision,
            hashkv=hashkv,
            etcd_version=status.version,
            storage_version=status.storageVersion,
            created=created,
            size=checked.size,
            sha256=checked.sha256,
            parts=crypto.parts(checked.size),
            key_version=key_version,
            wrapped_key=wrapped_key,
            object_counts=counts,
        )
        commits = self._names.snapshot_manifest(epoch.epoch, identifier)
        self._store.put(commits, [manifest.dump(taken, commits, self._names.proof)])
        return identifier, taken

    def _free_name(self, epoch: Epoch, revision: int) -> tuple[str, int]:
        """Return an identifier that no snapshot has, not even one that was never finished.

        It is the first free second: a name with a time far ahead, whoever made it, moves nothing.
        """
        created = int(self._clock())
        names = self._store.list(f"{self._names.snapshots(epoch.epoch)}{revision:020d}-")
        found = (self._names.parse_snapshot(item.name) for item in names)
        taken = {parse_snapshot_id(one.snapshot)[1] for one in found if one}
        while created in taken:
            created += 1
        return snapshot_id(revision, created), created

    def _evidence(self, endpoint: str, revision: int) -> tuple[int, int, dict[str, int]]:
        """Return compact revision, hash and counts at a snapshot's revision, for a restore to show.

        Where the stream took so long that the revision was compacted meanwhile, they are all empty.
        """
        try:
            answer = self._client.hash_kv(endpoint, revision, _HASH_SECONDS)
            return answer.compact_revision, answer.hash, objects.count(self._client, endpoint, revision)
        except Compacted:
            LOG.warning("%s compacted revision %d during its snapshot: no hash is kept", endpoint, revision)
            return 0, 0, {}
