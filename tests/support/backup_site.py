# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The backups of one real etcd in a folder: snapshots and log as an agent writes them."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path

from ironspan.backup.agent.epoch import open_epoch
from ironspan.backup.agent.snapshotter import Snapshotter
from ironspan.backup.catalogue import Catalogue, catalogue
from ironspan.backup.chain import Point, choose
from ironspan.backup.crypto import FileKeys
from ironspan.backup.file_store import FileStore
from ironspan.backup.manifest import Manifest, Verdict
from ironspan.backup.names import Names
from ironspan.backup.rebuild.drill import Place, drill
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.rebuild import Rebuild, Tools
from ironspan.backup.records import Record
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.takeover import take_over
from ironspan.etcd.client import EtcdClient
from tests.support.backup_proof import proof


class BackupSite:
    """A site with its store and keys.

    Args:
        folder: for both.
        client: of the etcd that is backed up.
        programs: for drills and rebuilds.
    """

    def __init__(self, folder: Path, client: EtcdClient, programs: Programs) -> None:
        self.folder, self.client = folder, client
        (folder / "keys").mkdir(parents=True)
        self.key = folder / "keys" / "1.key"
        self.key.write_bytes(base64.b64encode(os.urandom(32)))
        self.keys = FileKeys(folder / "keys")
        (folder / "store").mkdir()
        self.store = FileStore(folder / "store", "")
        self.names = Names("test", proof())
        self.tools = Tools(programs, progress=lambda text: None)
        cluster = client.status(client.endpoints[0]).header.cluster_id
        self.epoch = open_epoch(self.store, self.names, cluster, 1000)

    @property
    def revision(self) -> int:
        """The revision of etcd now."""
        return self.client.header().revision

    def snapshot(self) -> Manifest:
        """Take a snapshot."""
        return Snapshotter(self.client, self.store, self.keys, self.names).take(self.epoch)[1]

    def log(self, after: int, *batches: Sequence[Record]) -> str:
        """Write a segment, one append a batch, as a new writer does; returns its name."""
        end = take_over(self.store, self.names, self.epoch.epoch, "test")
        writer = SegmentWriter.begin(self.store, self.keys, self.names, self.epoch.epoch, end, after)
        for batch in batches:
            writer.append(batch)
        return writer.name

    def found(self) -> Catalogue:
        """Return what the store holds."""
        return catalogue(self.store, self.names)

    def rebuild(self, point: str, folder: Path) -> Rebuild:
        """Return a rebuild of a point that was not begun."""
        found = self.found()
        chain = choose(self.store, found, Point.parse(point), self.keys)
        return Rebuild(self.store, self.keys, found, chain, folder, self.tools)

    def drill(self, snapshot: str = "") -> Verdict:
        """Do a drill."""
        place = Place("drill-1", self.folder / "drill", self.tools)
        return drill(self.store, self.keys, self.names, snapshot, place)

    def path(self, name: str) -> Path:
        """Return the file of an object."""
        return self.folder / "store" / name
