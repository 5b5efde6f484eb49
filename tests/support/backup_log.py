# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes what an agent leaves in a store, without etcd."""

from __future__ import annotations

import base64
import collections.abc
import hashlib
import pathlib

from ironspan.backup import crypto
from ironspan.backup.catalogue import Snapshot
from ironspan.backup.crypto import FileKeys, Keys
from ironspan.backup.manifest import Epoch, Manifest, Restored, Verdict, dump
from ironspan.backup.names import Names, snapshot_id
from ironspan.backup.records import Event, Record, Revision
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.store import Item, Store
from ironspan.backup.takeover import take_over
from tests.support.backup_proof import proof

NAMES = Names("lab", proof())
CLUSTER = "cdf818194e3a8c32"
START_MS = 1_800_000_000_000
"""When revision 0 was, in these tests; revision N is N seconds later."""


class PlainKeys:
    """Keys that cost nothing: 'wrapped' is the data key itself."""

    current = "1"

    def wrap(self, data_key: bytes) -> tuple[str, bytes]:
        return self.current, data_key

    def unwrap(self, version: str, wrapped: bytes) -> bytes:
        return wrapped


def file_keys(folder: pathlib.Path, versions: collections.abc.Iterable[int] = (1,)) -> FileKeys:
    """Return keys in a new folder, with these versions."""
    folder.mkdir(parents=True, exist_ok=True)
    for version in versions:
        key = hashlib.sha256(b"%d" % version).digest()
        (folder / f"{version}.key").write_text(base64.b64encode(key).decode() + "\n")
    return FileKeys(folder)


def revision(number: int, value: bytes = b"value") -> Revision:
    """Return a transaction that writes one key."""
    event = Event(True, b"/registry/pods/%d" % (number % 7), value, number, 1)
    return Revision(number, START_MS + number * 1000, (event,))


def manifest(at: int, created: int, epoch: int = 1) -> Manifest:
    """Return what a snapshot of revision ``at`` says of itself, with nothing in it."""
    return Manifest(
        NAMES.site, epoch, CLUSTER, at, 1, 0, "3.6.16", "3.6.0", created, 1, "", 1, "1", b"", {}
    )  # fmt: skip


def taken(at: int, created: int, *, epoch: int = 1, verdict: Verdict | None = None) -> Snapshot:
    """Return a snapshot as a catalogue has it."""
    identifier = snapshot_id(at, created)
    data = Item(NAMES.snapshot_data(epoch, identifier), 17, created, created)
    return Snapshot(identifier, manifest(at, created, epoch), data, verdict)


def add_epoch(
    store: Store, number: int = 1, restored: Restored | None = None, created_ms: int = START_MS
) -> Epoch:
    """Begin an epoch."""
    epoch = Epoch(number, CLUSTER, created_ms // 1000, restored)
    store.put(NAMES.epoch(number), [dump(epoch, NAMES.epoch(number), NAMES.proof)])
    return epoch


def add_snapshot(
    store: Store, keys: Keys, at: int, *, epoch: int = 1, data: bytes = b"database", unix: int = 0
) -> str:
    """Make a snapshot of revision ``at`` and return its identifier."""
    created = unix or START_MS // 1000 + at
    identifier = snapshot_id(at, created)
    data_key = crypto.new_data_key()
    version, wrapped = keys.wrap(data_key)
    name = NAMES.snapshot_data(epoch, identifier)
    store.put(name, crypto.encrypt([data], data_key, name))
    manifest = Manifest(
        site=NAMES.site, epoch=epoch, cluster_id=CLUSTER, revision=at, compact_revision=1, hashkv=4711,
        etcd_version="3.6.16", storage_version="3.6.0", created=created, size=len(data),
        sha256=hashlib.sha256(data).hexdigest(), parts=crypto.parts(len(data)), key_version=version,
        wrapped_key=wrapped, object_counts={"/registry/pods": 7},
    )  # fmt: skip
    commits = NAMES.snapshot_manifest(epoch, identifier)
    store.put(commits, [dump(manifest, commits, NAMES.proof)])
    return identifier


def add_log(
    store: Store,
    keys: Keys,
    batches: collections.abc.Iterable[collections.abc.Sequence[Record]],
    *,
    after: int | None = None,
    epoch: int = 1,
    sealed: bool = True,
) -> str:
    """Write a segment with a frame for each batch and return its name."""
    end = take_over(store, NAMES, epoch, "test")
    writer = SegmentWriter.begin(store, keys, NAMES, epoch, end, after)
    for batch in batches:
        writer.append(batch)
    if sealed:
        writer.seal("test")
    return writer.name


def add_verdict(store: Store, snapshot: str, verified: bool, *, epoch: int = 1, unix: int = 1) -> None:
    """Record what a drill said."""
    verdict = Verdict(
        epoch,
        snapshot,
        verified,
        int(snapshot.split("-")[0]),
        unix,
        1.5,
        "az-1",
        () if verified else ("bad",),
    )
    name = NAMES.verdict(epoch, snapshot, unix)
    store.put(name, [dump(verdict, name, NAMES.proof)])
