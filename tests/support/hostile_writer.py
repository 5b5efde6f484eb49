# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Somebody with the writer's identity at the store: makes objects, appends to segments, and has no key."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import random
import struct
import typing as t

from ironspan.backup import manifest as manifests
from ironspan.backup.errors import PositionConflict
from ironspan.backup.frame import Header, build
from ironspan.backup.manifest import Epoch, Manifest, Verdict
from ironspan.backup.names import Names, snapshot_id
from ironspan.backup.proof import canonical
from ironspan.backup.store import Store
from ironspan.program.errors import NotThere, ServiceError
from tests.support.backup_proof import proof

THEIRS = proof(site="theirs")
HUGE = 10**15
FAR_AHEAD = 4_000_000_000


class HostileWriter:
    """Does what the store lets it do. What it made is in ``made``, by name, with what it is.

    Args:
        store: as the identity sees it.
        names: of the site, whose keys it does not have.
        cluster: the id that the genuine epoch has, which it can read.
        chance: decides what is not given.
        newest: the epoch that it works on.
    """

    def __init__(
        self, store: Store, names: Names, cluster: str, chance: random.Random, newest: int = 1
    ) -> None:
        self.store, self.names, self.cluster, self.chance = store, names, cluster, chance
        self.newest = newest
        self.made: dict[str, str] = {}

    def act(self) -> None:
        """Do one thing."""
        acts: list[t.Callable[[], None]] = [
            self.manifest, self.epoch, self.verdict, self.segment, self.replay, self.extend, self.junk,
            self.bundle,
        ]  # fmt: skip
        self.chance.choice(acts)()

    def put(self, name: str, data: bytes, what: str) -> None:
        """Make an object, where the store has none of that name."""
        with contextlib.suppress(ServiceError):
            self.store.put(name, [data])
            self.made[name] = what

    def manifest(self, revision: int = 0, created: int = 0) -> None:
        """Forge a snapshot, with data that fit its manifest: as schema 1, or signed with another key."""
        revision = revision or self.chance.choice([1, 7, 40, 10_000, HUGE, 2**63])
        created = created or self.chance.randrange(1, FAR_AHEAD)
        identifier, epoch = snapshot_id(revision, created), self.newest
        data = b"forged" + bytes(16)
        value = Manifest(
            site=self.names.site, epoch=epoch, cluster_id=self.cluster, revision=revision, compact_revision=1,
            hashkv=1, etcd_version="3.6.16", storage_version="3.6.0", created=created, size=len(data) - 16,
            sha256=hashlib.sha256(data[:-16]).hexdigest(), parts=1, key_version="1", wrapped_key=bytes(32),
            object_counts={},
        )  # fmt: skip
        self.put(self.names.snapshot_data(epoch, identifier), data, "data")
        name = self.names.snapshot_manifest(epoch, identifier)
        self.put(name, self._forged(value, name), "manifest")

    def epoch(self, number: int = 0) -> None:
        """Forge an epoch of another cluster, or of this one."""
        number = number or self.chance.choice([2, 3, 9, 999_999])
        cluster = self.chance.choice(["bad", self.cluster])
        name = self.names.epoch(number)
        self.put(name, self._forged(Epoch(number, cluster, 5), name), "epoch")

    def verdict(self) -> None:
        """Forge a verdict on a snapshot that there is, or is not."""
        there = [
            parsed.snapshot
            for item in self.store.list(self.names.snapshots(self.newest))
            if (parsed := self.names.parse_snapshot(item.name))
        ]
        identifier = self.chance.choice([*there, snapshot_id(HUGE, 5)])
        name = self.names.verdict(self.newest, identifier, FAR_AHEAD + self.chance.randrange(1000))
        value = Verdict(self.newest, identifier, self.chance.random() < 0.5, HUGE, FAR_AHEAD, 1.0, "az-1")
        self.put(name, self._forged(value, name), "verdict")

    def segment(self) -> None:
        """Forge a segment, in each format: any number, any revision; whole, cut, sealed or empty."""
        number, first = self.chance.choice([1, 2, 3, 4, 5, 6, 999_999]), self.chance.choice([1, 41, HUGE])
        name = self.names.log(self.newest, first, number)
        last = self.chance.choice([first, HUGE])
        frames = self._frames(name, 0, "", first, last)
        if self.chance.random() < 0.3:
            frames = frames[: self.chance.randrange(len(frames))]
        if self.chance.random() < 0.3:
            self.put(name, frames, "segment" if frames else "empty")
            return
        with contextlib.suppress(ServiceError):
            self.store.create_append(name)
            self.made[name] = "empty"
            if frames:
                self.store.append(name, frames, 0)
                self.made[name] = "segment"

    def replay(self) -> None:
        """Copy a genuine object to another name of its kind, whole or cut."""
        genuine = [item.name for item in self.store.list(self.names.everything) if item.name not in self.made]
        source = self.chance.choice(genuine)
        data = b"".join(self.store.read(source))
        revision, unix = self.chance.choice([3, 41, 100, HUGE]), self.chance.randrange(FAR_AHEAD)
        if self.names.parse_log(source):
            target = self.names.log(self.newest, revision, self.chance.choice([3, 4, 5, 77]))
        elif self.names.parse_epoch(source):
            target = self.names.epoch(self.chance.choice([2, 3, 4]))
        elif self.names.parse_verdict(source):
            target = self.names.verdict(self.newest, snapshot_id(revision, unix), unix)
        else:
            target = self.names.snapshot_manifest(self.newest, snapshot_id(revision, unix))
        if self.chance.random() < 0.3:
            data = data[: self.chance.randrange(len(data) + 1)]
        self.put(target, data, "replay" if data else "empty")

    def extend(self) -> None:
        """Append to a genuine segment: forged frames that go on from its last one, a cut, or noise."""
        names = [item.name for item in self.store.list(self.names.logs(self.newest))]
        if not names:
            return
        name = self.chance.choice(names)
        size = self.store.size(name)
        with contextlib.suppress(PositionConflict, NotThere, ServiceError):
            noise = self.chance.randbytes(self.chance.randrange(1, 90))
            forged = self._frames(name, self.chance.choice([0, 2, 3]), "00" * 32, 21, HUGE)
            self.store.append(name, self.chance.choice([noise, forged, forged[:40]]), size)

    def junk(self) -> None:
        """Make something of no kind."""
        name = self.chance.choice(["x/y", "e000001/log/zzz", "epochs/a.json", "e7/z"])
        self.put(f"{self.names.everything}{name}{self.chance.randrange(100)}", b"junk", "junk")

    def bundle(self, unix: int = 0) -> None:
        """Forge a bundle of the PKI store, with any stamp and any time."""
        name = self.names.recovery(unix or self.chance.randrange(1, FAR_AHEAD))
        text = {"format": "ironspan-recovery", "schema": 1, "stamp": "one", "sealed": "AAAA"}
        self.put(name, json.dumps(text).encode(), "bundle")

    def _forged(self, value: Epoch | Manifest | Verdict, name: str) -> bytes:
        if self.chance.random() < 0.5:
            return manifests.dump(value, name, THEIRS)
        return unsigned_bytes(value)

    def _frames(self, name: str, number: int, previous: str, first: int, last: int) -> bytes:
        header = Header(number, previous, first, last, FAR_AHEAD * 1000, key_version="1", wrapped_key="AAAA")
        if self.chance.random() < 0.3:
            return unsigned_frame(header, b"body")
        data, digest = build(header, name, THEIRS, lambda head: b"body")
        if self.chance.random() < 0.5:
            seal = Header(number + 1, digest, last + 1, last, FAR_AHEAD * 1000, sealed=True)
            data += build(seal, name, THEIRS)[0]
        return data


def unsigned_bytes(value: Epoch | Manifest | Verdict) -> bytes:
    """Return a small object as it was written before objects were signed (schema 1)."""
    fields = json.loads(manifests.dump(value, "", THEIRS))
    for name in ("signature", "signer", "digest"):
        del fields[name]
    fields["schema"] = 1
    digest = hashlib.sha256(canonical(fields)).hexdigest()
    return (json.dumps({**fields, "digest": digest}, sort_keys=True, indent=1) + "\n").encode()


def unsigned_frame(
    header: Header, body: bytes = b"", sealing: t.Callable[[bytes], bytes] | None = None
) -> bytes:
    """Return a frame as it was written before frames were signed (``ISL1``)."""
    fields = {
        key: value
        for key, value in dataclasses.asdict(header).items()
        if value or key in ("number", "previous", "first", "last", "time_ms")
    }
    head = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    body = sealing(head) if sealing else body
    return struct.pack(">4sII", b"ISL1", len(head), len(body)) + head + body
