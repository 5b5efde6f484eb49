# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds out that etcd on this host serves a database that is older than its backup, and has it closed.

Somebody put a former data folder back, restored by hand, or went back to a snapshot of the machines' disks.
A read that sees every acknowledged write can then be compared with what the backup had before the read was
sent: the log has nothing that etcd had not acknowledged, so a lower revision is lost data, never a lag.
What closes etcd is systemd, for as long as the file is there that this module writes (docs/backup.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Gauge

from ironspan.backup.agent import epoch as epochs
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.catalogue import listed, read_small
from ironspan.backup.ends import end_of_log
from ironspan.backup.errors import ChainError
from ironspan.backup.manifest import Epoch, Manifest
from ironspan.backup.names import Names, parse_snapshot_id
from ironspan.backup.settings import Settings
from ironspan.backup.store import Store
from ironspan.backup.takeover import segments_of
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError
from ironspan.program.errors import NotThere, ProgramError
from ironspan.program.lasting import Lasting
from ironspan.program.service import Step, repeating
from ironspan.program.state import write_json

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 2.0
OLDER_SECONDS = 4.0
OTHER_SECONDS = 120.0
"""A store on NFS may show another host's new epoch a minute late (nfs(5), acdirmax)."""
DEADLINE_SECONDS = OTHER_SECONDS + 60.0
"""A look that finds something takes as long as that."""
_LOOKS = 3
"""How often it is looked at in that time, at least."""
_LONGEST_WAIT_SECONDS = 10.0
_PATIENCE_SECONDS = 3.0
RIGHT, WRONG, CLOSED = 0, 1, 2
"""What the metric says."""
WAYS_OUT = (
    "To put the backup in its place: ironspan apply etcd_restore --allow-destructive",
    "To go on with this database, and lose what the backup has beyond it: "
    "ironspan backup accept --allow-destructive",
)


@dataclass(frozen=True, slots=True)
class Served:
    """What a member serves."""

    cluster: str
    """Id of its cluster, hexadecimal."""
    member: int
    revision: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What has to be served at least: the newest epoch of the backup, and the last revision known of it."""

    epoch: int
    cluster: str
    revision: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, for how long (seconds) it has to stay so, and whether etcd is to be closed then."""

    text: str
    seconds: float
    certain: bool


def judge(kept: Kept, own: Served | None, others: Sequence[Served], knew_it: bool) -> Finding | None:
    """Say what is wrong with what this host's member serves.

    Args:
        kept: of the backup, read before the members were asked.
        own: what this host's member serves to others; None when it does not.
        others: what those other members serve that answer.
        knew_it: whether this host has served the newest epoch's cluster before.
    """
    if own is None:
        return None
    if own.cluster != kept.cluster:
        text = (
            f"etcd serves cluster {own.cluster}, and the newest epoch of the backup, {kept.epoch}, belongs "
            f"to cluster {kept.cluster}."
        )
        # A cluster that was built on purpose, or another site that writes to the same place, is as unknown
        # here. Only who had the right data, or sees them beside these, knows that these were put back.
        certain = knew_it or any(other.cluster == kept.cluster for other in others)
        return Finding(text, OTHER_SECONDS, certain)
    if own.revision >= kept.revision:
        return None
    text = (
        f"etcd serves revision {own.revision} of cluster {own.cluster}, and revision {kept.revision} was "
        f"there before, in epoch {kept.epoch} of the backup: this database is older than its backup."
    )
    agreed = all(one.cluster == kept.cluster and one.revision < kept.revision for one in others)
    return Finding(text, OLDER_SECONDS, agreed)


def kept_in(store: Store, names: Names, epoch: Epoch) -> Kept:
    """Return the last revision that an epoch's log and snapshots have, as members signed it.

    No name is believed, nor what somebody else wrote: a member signs a revision only after its etcd served
    it. Raises ServiceError.
    """
    segments = ((segment.number, item.name) for item, segment in segments_of(store, names, epoch.epoch))
    revision = max(_newest_snapshot(store, names, epoch), end_of_log(store, segments, names.proof))
    return Kept(epoch.epoch, epoch.cluster_id, revision)


def _newest_snapshot(store: Store, names: Names, epoch: Epoch) -> int:
    """Return the revision of the newest snapshot that is signed, 0 without one."""
    manifests = [
        (parse_snapshot_id(parsed.snapshot), item.name)
        for item in listed(store, names.snapshots(epoch.epoch))
        if (parsed := names.parse_snapshot(item.name)) and parsed.part != "data"
    ]
    for _, name in sorted(manifests, reverse=True):
        with contextlib.suppress(NotThere, ChainError):
            return read_small(store, Manifest, name, names.proof).revision
    return 0


def closing_file(settings: Settings) -> Path:
    """Return the file that keeps etcd closed while it is there."""
    return settings.spool.path.parent / "closed.json"


class Guard:
    """Compares again and again. One thread calls ``step``.

    Args:
        settings: of this host.
        client: of the cluster.
        store: the first one.
        names: of the site, with what proves who wrote the backup.
        gauge: shows RIGHT, WRONG or CLOSED.
        stop: ends a wait.
        clock: seconds, never set back.
    """

    def __init__(
        self,
        settings: Settings,
        client: EtcdClient,
        store: Store,
        names: Names,
        gauge: Gauge,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._client, self._store = settings, client, store
        self._gauge, self._stop, self._clock = gauge, stop, clock
        self._names = names
        self._closing = closing_file(settings)
        self._memory = self._closing.with_name("served.json")
        self._kept: Kept | None = None
        self._look = True
        self._lasting = Lasting(LOG, logging.ERROR)

    def step(self) -> None:
        """Compare once; a difference is looked at until it is gone or certain.

        Raises:
            ProgramError: the store cannot be read. Then nothing is known, and nothing is done.
        """
        finding = self._found()
        self._lasting.tell(finding and finding.text, "found")
        self._gauge.set(CLOSED if self._closing.exists() else WRONG if finding else RIGHT)

    def _found(self) -> Finding | None:
        own = self._ask(self._settings.etcd.local)
        if own is None:
            # Data are changed while etcd is down; after that the backup is looked at again.
            self._look = True
            return None
        if self._look:
            self._learn()
            own = self._ask(self._settings.etcd.local)
        kept = self._kept
        if kept is None or own is None:
            return None
        if own.cluster == kept.cluster and own.revision >= kept.revision:
            self._right(own, kept)
            return None
        return self._confirmed(own.member)

    def _confirmed(self, member: int) -> Finding | None:
        """Look again until the difference is gone, or has been there for long enough."""
        began = self._clock()
        while True:
            kept = self._learn()
            if kept is None:
                return None
            served = [self._ask(endpoint) for endpoint in self._client.endpoints]
            own = next((one for one in served if one and one.member == member), None)
            others = [one for one in served if one and one is not own]
            finding = judge(kept, own, others, self._knew(kept))
            if own is None or finding is None:
                return None
            self._gauge.set(WRONG)
            if self._clock() - began >= finding.seconds:
                if finding.certain and self._settings.guard == "stop":
                    self._close(finding, kept, own)
                return finding
            if self._stop.wait(min(finding.seconds / (_LOOKS - 1), _LONGEST_WAIT_SECONDS)):
                return None

    def _learn(self) -> Kept | None:
        """Read what the backup has; what was seen before counts as long as the epoch is the same."""
        # A store that fails on the way leaves nothing to compare with: the next step has to read it again.
        self._look, before = True, self._kept
        newest = epochs.newest(self._store, self._names)
        known = read(self._memory).get("epoch")
        seen = max(before.epoch if before else 0, known if isinstance(known, int) else 0)
        if (newest.epoch if newest else 0) < seen:
            raise ChainError(
                f"Epoch {seen} of the backup was there and signed, and is not to be found now.",
                "Find out what happened to the store; nothing is compared with an older epoch.",
            )
        kept = kept_in(self._store, self._names, newest) if newest is not None else None
        if kept is not None and before is not None and before.epoch == kept.epoch:
            kept = dataclasses.replace(kept, revision=max(kept.revision, before.revision))
        self._kept, self._look = kept, kept is None
        return kept

    def _right(self, own: Served, kept: Kept) -> None:
        self._kept = dataclasses.replace(kept, revision=own.revision)
        if not self._knew(kept):
            self._write(self._memory, {"epoch": kept.epoch, "cluster": kept.cluster})

    def _knew(self, kept: Kept) -> bool:
        known = read(self._memory)
        return (known.get("epoch"), known.get("cluster")) == (kept.epoch, kept.cluster)

    def _ask(self, endpoint: str) -> Served | None:
        """Return what a member serves, by a read that needs the quorum and sees every acknowledged write."""
        try:
            header = self._client.header(endpoint=endpoint, timeout=_PATIENCE_SECONDS)
        except EtcdError:
            return None
        return Served(f"{header.cluster_id:x}", header.member_id, header.revision)

    @staticmethod
    def _write(path: Path, content: dict[str, object]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path, content)

    def _close(self, finding: Finding, kept: Kept, own: Served) -> None:
        LOG.error("etcd of this host is closed. %s", finding.text)
        self._write(
            self._closing,
            {
                "found": finding.text,
                "ways_out": list(WAYS_OUT),
                "epoch": kept.epoch,
                "cluster": own.cluster,
                "revision": own.revision,
                "backup": dataclasses.asdict(kept),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
        )


@contextlib.contextmanager
def guarding(
    settings: Settings,
    client: EtcdClient,
    store: Store,
    names: Names,
    metrics: Metrics,
    stop: threading.Event,
) -> Iterator[None]:
    """Compare in a thread as long as the block runs; for the arguments see ``Guard``."""
    guard = Guard(settings, client, store, names, metrics.guard, stop)
    with repeating(metrics, Step("guard", guard.step, PAUSE_SECONDS, DEADLINE_SECONDS)):
        yield


def read(path: Path) -> dict[str, object]:
    """Return what one of the guard's files says; empty when it is not there or is damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def refused(path: Path) -> tuple[Served, int]:
    """Return what was served when etcd was closed, and the epoch that it contradicted.

    Raises:
        ProgramError: the file does not say it.
    """
    found = read(path)
    cluster, revision, epoch = (found.get(name) for name in ("cluster", "revision", "epoch"))
    if not isinstance(cluster, str) or not isinstance(revision, int) or not isinstance(epoch, int):
        raise ProgramError(
            f"{path} is not what the agent wrote.", "Look at it; the agent's log has the same."
        )
    return Served(cluster, 0, revision), epoch
