# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes the database of a point out of a snapshot and the log, in steps that a later run goes on from."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import logging
import shutil
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

from ironspan.backup import chain as chains
from ironspan.backup import objects
from ironspan.backup.catalogue import Catalogue
from ironspan.backup.chain import Chain
from ironspan.backup.crypto import Keys
from ironspan.backup.errors import ChainError
from ironspan.backup.log_reader import read_log
from ironspan.backup.manifest import Manifest
from ironspan.backup.rebuild.apiserver import read_all
from ironspan.backup.rebuild.check import check
from ironspan.backup.rebuild.fetch import fetch
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.replay import Replayed, last_revision, replay, seal
from ironspan.backup.rebuild.scratch import NO_LIMITS, Limits, Scratch, locked
from ironspan.backup.store import Store
from ironspan.program.errors import ProgramError
from ironspan.program.state import write_json

LOG = logging.getLogger(__name__)
DATABASE, FACTS = "restored.db", "facts.json"
LEAST_BUMP = 1_000_000_000
"""What OpenShift's restore adds when it knows nothing better (bindata/etcd/restore-pod.yaml)."""
LOG_GROWTH = 8
"""Bytes of database for one of the compressed log, at most: JSON compresses six-fold, a page is not full."""
SPARE_BYTES = 256 << 20
_WORK, _STEPS = "snapshot.db", "steps.json"


class NotProven(ChainError):
    """A backup was restored, and what came out is not what was backed up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """What a rebuild needs besides the backups."""

    programs: Programs
    limits: Limits = NO_LIMITS
    progress: Callable[[str], None] = LOG.info


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What was rebuilt, and what a restore of it needs to know (facts.json)."""

    database: str
    sha256: str
    """Of the database without its trailer."""
    size: int
    site: str
    epoch: int
    cluster_id: str
    snapshot: str
    snapshot_revision: int
    revision: int
    last_seen_revision: int
    bump: int
    """For ``--bump-revision``: with it the first new revision is beyond all that were ever seen."""
    objects: int
    replayed: dict[str, int]
    etcd_version: str
    storage_version: str
    time_ms: int
    """The newest time that the chain has, milliseconds since 1970."""


class Rebuild:
    """One rebuild in one folder; what a broken run of the same chain finished is not done again.

    Args:
        store: where the backups are.
        keys: open them.
        found: what the store holds.
        chain: what leads to the point.
        folder: for the result; made when it is missing.
        tools: programs, limits, and who is told what happens.
        seen: the highest revision that is known besides what the catalogue has.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        found: Catalogue,
        chain: Chain,
        folder: Path,
        tools: Tools,
        seen: int = 0,
    ) -> None:
        self._store, self._keys, self._found = store, keys, found
        self._chain, self._folder, self._tools = chain, folder, tools
        self._manifest = chain.snapshot.manifest
        self._seen = seen
        self._steps: dict[str, t.Any] = {}

    def refuse(self) -> None:
        """Refuse what cannot succeed, before anything is fetched.

        Raises:
            ProgramError: etcd here is too old, or the disk too small.
        """
        self._tools.programs.check_opens(self._manifest.etcd_version, self._manifest.storage_version)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        needed, free = needed_bytes(self._chain), self._free()
        if free < needed:
            raise ProgramError(
                f"The rebuild needs {needed >> 20} MiB below {self._folder}, and {free >> 20} MiB are free.",
                "Make room there, or name a folder on another file system.",
            )

    def run(self, later: Manifest | None = None, apiserver: Path | None = None) -> Facts:
        """Fetch, replay and check.

        Args:
            later: of a snapshot that the log leads to, to compare with as well.
            apiserver: a kube-apiserver that has to serve from what was restored.

        Raises:
            ProgramError: what the backups lead to is not what they say; subclasses say more.
        """
        with self._locked():
            self._go_on()
            with self._room():
                self._step("fetched", self._fetch)
                replayed = Replayed(**self._step("replayed", self._replay))
                sealed = self._step("sealed", self._seal)
                checked = self._step("checked", lambda: self._check(replayed, later, apiserver))
            facts = self._facts(replayed, sealed, checked)
            write_json(self._folder / FACTS, dataclasses.asdict(facts))
        return facts

    # -- steps -------------------------------------------------------------------------------------

    def _fetch(self) -> dict[str, t.Any]:
        snapshot, size = self._chain.snapshot, self._manifest.size
        self._tools.progress(f"fetching snapshot {snapshot.id}, {size >> 20} MiB")
        work = self._folder / _WORK
        if work.exists() and work.stat().st_size > size:
            work.unlink()
        fetch(self._store, self._keys, snapshot.data.name, self._manifest, work)
        return {"size": size}

    def _replay(self) -> dict[str, t.Any]:
        work, revision = self._folder / _WORK, self._manifest.revision
        if last_revision(work) > revision:
            # A run ended between the end of its replay and the note of it.
            work.unlink()
            self._fetch()
        have = last_revision(work)
        if have != revision:
            raise ChainError(
                f"Snapshot {self._chain.snapshot.id} is at revision {have}, and its manifest at {revision}.",
                "Use another snapshot.",
                altered=self._chain.snapshot.data.name,
            )
        self._tools.progress(f"replaying the log from revision {have} to {self._chain.revision}")
        # Without an end: the value of a coalesced write comes after it.
        links = [(link.segment.name, link.digest) for link in self._chain.links]
        schema = self._found.names.proof.schema
        records = read_log(self._store, self._keys, links, have, schema=schema)
        return dataclasses.asdict(replay(work, records, self._beyond))

    def _seal(self) -> dict[str, t.Any]:
        work, database = self._folder / _WORK, self._folder / DATABASE
        if not work.exists() and database.exists():
            work = database
        digest = seal(work)
        work.rename(database)
        return {"sha256": digest, "size": database.stat().st_size}

    def _check(self, replayed: Replayed, later: Manifest | None, apiserver: Path | None) -> dict[str, t.Any]:
        self._tools.progress("restoring it into a scratch etcd and comparing")
        with self.scratch() as scratch:
            scratch.restore(self._folder / DATABASE)
            client = scratch.start()
            found = check(client, scratch.endpoint, self._manifest, replayed, later)
            if apiserver is not None and not found.findings:
                counts = objects.count(client, scratch.endpoint, found.revision)
                found.findings.extend(read_all(scratch, apiserver, counts))
        if found.findings:
            raise NotProven(
                f"What snapshot {self._chain.snapshot.id} and its log lead to is not what was backed up: "
                f"{'; '.join(found.findings)}.",
                "Use another snapshot, or the copy in another store.",
            )
        return dataclasses.asdict(found)

    def scratch(self) -> Scratch:
        """Return the scratch etcd of this folder."""
        return Scratch(self._folder / "scratch", self._tools.programs, self._tools.limits)

    # -- between steps -----------------------------------------------------------------------------

    def _beyond(self, revision: int, time_ms: int) -> bool:
        point = self._chain.point
        if point.kind == "time":
            return time_ms > point.value
        return revision > self._chain.revision

    def _step(self, name: str, work: Callable[[], dict[str, t.Any]]) -> dict[str, t.Any]:
        """Do a step unless an earlier run finished it; returns what it noted."""
        if name not in self._steps:
            self._steps[name] = work()
            self._note()
        return t.cast("dict[str, t.Any]", self._steps[name])

    def _note(self) -> None:
        write_json(self._folder / _STEPS, self._steps)

    def _go_on(self) -> None:
        """Read what an earlier run finished; of one of another chain only the same snapshot counts."""
        chain = self._chain
        wanted = {"snapshot": chain.snapshot.id, "revision": chain.revision, "point": str(chain.point)}
        with contextlib.suppress(OSError, ValueError):
            self._steps = json.loads((self._folder / _STEPS).read_bytes())
        work, database = self._folder / _WORK, self._folder / DATABASE
        if self._steps.get("chain") == wanted and (database if "sealed" in self._steps else work).exists():
            return
        same = self._steps.get("chain", {}).get("snapshot") == wanted["snapshot"]
        kept = (
            {"fetched": self._steps["fetched"]} if same and work.exists() and "fetched" in self._steps else {}
        )
        for path in (database, self._folder / FACTS, *([] if same else [work])):
            path.unlink(missing_ok=True)
        self._steps = {"chain": wanted, **kept}
        self._note()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._folder):
            yield

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise ProgramError(
                f"The disk below {self._folder} is full.",
                "Make room there and run again: what is finished is not done again.",
            ) from error

    def _free(self) -> int:
        """Return the bytes that a rebuild may use: what is free, and what an earlier run already took."""
        used = sum(path.stat().st_blocks * 512 for path in self._folder.glob("*.db"))
        return shutil.disk_usage(self._folder).free + used

    def _facts(self, replayed: Replayed, sealed: dict[str, t.Any], checked: dict[str, t.Any]) -> Facts:
        manifest = self._manifest
        seen = max(chains.last_seen(self._store, self._found), replayed.revision, self._seen)
        return Facts(
            database=str(self._folder / DATABASE),
            sha256=sealed["sha256"],
            size=sealed["size"],
            site=manifest.site,
            epoch=manifest.epoch,
            cluster_id=manifest.cluster_id,
            snapshot=self._chain.snapshot.id,
            snapshot_revision=manifest.revision,
            revision=replayed.revision,
            last_seen_revision=seen,
            bump=bump(replayed.revision, seen),
            objects=checked["objects"],
            replayed=dataclasses.asdict(replayed),
            etcd_version=manifest.etcd_version,
            storage_version=manifest.storage_version,
            time_ms=self._chain.time_ms,
        )


def bump(revision: int, last_seen: int) -> int:
    """Return by how much a restore raises revisions, so that nobody ever saw one of the new ones.

    Args:
        revision: the last one of the restored database.
        last_seen: the highest that any backup names; writes after it, which were lost, may have gone on.
    """
    return last_seen - revision + max(LEAST_BUMP, last_seen // 5)


def needed_bytes(chain: Chain) -> int:
    """Return the bytes of disk that a rebuild takes: the database, and the scratch etcd's copy of it."""
    log = sum(link.segment.item.size for link in chain.links)
    return 2 * (chain.snapshot.manifest.size + LOG_GROWTH * log) + SPARE_BYTES
