# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Agents of several hosts in this process, to be killed and frozen many times a second.

They are the agent's own session, lease and log; only their pauses are short, and their clock is a test's.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import types
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ironspan.backup.agent import copier, schedule, session
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.session import Session
from ironspan.backup.agent.snapshots import Snapshots
from ironspan.backup.agent.snapshotter import Snapshotter
from ironspan.backup.crypto import Keys
from ironspan.backup.errors import WrongCluster
from ironspan.backup.log import pipeline, sender, watch
from ironspan.backup.log.pipeline import Pipeline
from ironspan.backup.manifest import Epoch, Manifest
from ironspan.backup.names import Names
from ironspan.backup.settings import Settings, parse
from ironspan.backup.store import LEASE_SECONDS, Store
from ironspan.etcd.client import EtcdClient
from ironspan.program import leader
from ironspan.program.errors import LeaseLost, ProgramError
from ironspan.program.leader import Keeper, Leadership
from tests.support.backup_log import NAMES, PlainKeys
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore

STAND_BACK_SECONDS = 0.05
PATIENCE_SECONDS = 120.0


class Clock:
    """Seconds since 1970, which a test moves on or back, but not while a snapshot is taken."""

    def __init__(self, now: float) -> None:
        self._ahead = now - time.monotonic()
        self.standing = threading.Lock()

    def __call__(self) -> float:
        """Return the time."""
        return self._ahead + time.monotonic()

    def move(self, seconds: float) -> None:
        """Let time go by, or set the clock back; not while a snapshot waits for a store that hangs."""
        if self.standing.acquire(timeout=0.1):
            self._ahead += seconds
            self.standing.release()


class Objects(MemoryStore):
    """A store in memory whose leases run out when a test says so."""

    def __init__(self) -> None:
        self.gone_by = 0.0
        super().__init__(self.now)

    def now(self) -> float:
        """Return the store's own time, seconds."""
        return time.monotonic() + self.gone_by

    def expire(self) -> None:
        """Let the leases run out of all that do not renew them."""
        self.gone_by += LEASE_SECONDS[0]


class _Session(Session):
    host: Host

    def _begin(self, *arguments: t.Any) -> Pipeline:
        made = super()._begin(*arguments)
        spill = made.outbox.spill
        made.outbox.spill = lambda: None if self.host.killed else spill()  # type: ignore[method-assign]
        made.outbox._patience = 0.05
        made.reader._interval = 0.4
        made.reader._wall = self.host.clock
        made.probe._interval = 0.2
        self.host.pipeline, self.host.begun = made, time.monotonic()
        return made

    def _attend(self, pipeline: Pipeline, epoch: Epoch, stop: threading.Event, snapshots: Snapshots) -> None:
        self.host.snapshots = snapshots
        super()._attend(pipeline, epoch, stop, snapshots)


def quicken(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Make every pause of an agent short, and the time that it reads a test's."""

    class Unhurried(Snapshotter):
        def __init__(self, client: EtcdClient, store: Store, keys: Keys, names: Names) -> None:
            super().__init__(client, store, keys, names, clock)

        def take(self, epoch: Epoch, least: int = 0) -> tuple[str, Manifest]:
            with clock.standing:
                return super().take(epoch, least)

    read = types.SimpleNamespace(time=clock, monotonic=time.monotonic)
    patch.setattr(session, "Snapshotter", Unhurried)
    patch.setattr(session, "time", read)
    patch.setattr(pipeline, "time", read)
    for module, name, value in (
        (leader, "RENEW_SECONDS", 0.3),
        (leader, "STANDBY_SECONDS", 0.03),
        (leader, "AFTER_OUTAGE_SECONDS", 0.03),
        (schedule, "FIRST_PAUSE_SECONDS", 0.03),
        (schedule, "LONGEST_PAUSE_SECONDS", 0.1),
        (copier, "LONGEST_PAUSE_SECONDS", 0.2),
        (session, "SNAPSHOT_PAUSE_SECONDS", 0.02),
        (session, "EPOCH_PAUSE_SECONDS", 0.1),
        (session, "DRAIN_SECONDS", 0.3),
        (sender, "BACKOFF_S", (0.005, 0.05)),
        (sender, "_IDLE_S", 0.05),
        (watch, "BACKOFF_S", (0.01, 0.1)),
    ):
        patch.setattr(module, name, value)


@dataclasses.dataclass(frozen=True)
class Pace:
    """How the agents of a run are set.

    Attributes:
        snapshot_every_s: seconds between snapshots.
        spool_bytes: that the spool may have.
        flush_ms: between flushes.
    """

    snapshot_every_s: float = 1000
    spool_bytes: int = 64 << 20
    flush_ms: int = 20

    def settings(self, host: str, folder: Path, endpoints: tuple[str, ...]) -> Settings:
        """Return the settings of one host."""
        etcd = {"endpoints": list(endpoints), "local": endpoints[0], "data_dir": "/nowhere"}
        read = parse(
            {
                "site": NAMES.site,
                "host": host,
                "etcd": etcd,
                "stores": [{"kind": "file", "path": "/nowhere"}],
                "keys": {"kind": "file", "folder": "/nowhere"},
                "proof": {"trusted": {"writer": {}, "drill": {}}},
                "spool": {"path": str(folder / f"spool-{host}")},
                "flush_ms": self.flush_ms,
            }
        )
        spool = dataclasses.replace(read.spool, max_bytes=self.spool_bytes)
        return dataclasses.replace(read, spool=spool, snapshot_every_s=t.cast("int", self.snapshot_every_s))


class Host:
    """One host, whose spool stays when its agent is killed.

    Args:
        name: of the host.
        folder: for the spool.
        client: of etcd.
        objects: the store.
        clock: for records and snapshots.
        weather: says what happens to each request to the store.
        pace: how it is set.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        client: EtcdClient,
        objects: Objects,
        clock: Clock,
        weather: Callable[[Host, str, str], Fault | None],
        pace: Pace,
    ) -> None:
        self.name, self.client, self.clock = name, client, clock
        self.settings = pace.settings(name, folder, client.endpoints)
        self.pipeline: Pipeline | None = None
        self.snapshots: Snapshots | None = None
        self.begun = 0.0
        """When this run of the log was begun."""
        self.problems: list[ProgramError] = []
        self.defects: list[Exception] = []
        self.killed = False
        self.lied: Pipeline | None = None
        """The log that the store said a write of was done, which was not."""
        self._metrics = Metrics()
        self._objects, self._weather = objects, weather
        self._awake = threading.Event()
        self._awake.set()
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """Whether an agent runs here, awake or not."""
        return self._thread is not None

    @property
    def frozen(self) -> bool:
        """Whether it is kept from reaching the store."""
        return not self._awake.is_set()

    @property
    def refused(self) -> bool:
        """Whether the last thing that happened is that the store is another cluster's."""
        return bool(self.problems) and isinstance(self.problems[-1], WrongCluster)

    @property
    def gaps(self) -> float:
        """How often revisions were lost to the log."""
        return self._metrics.registry.get_sample_value("ironspan_etcd_backup_gaps_total") or 0.0

    def age(self) -> float:
        """Return what the agent says of losing etcd now, seconds; infinite while it has not looked."""
        pipeline, snapshots = self.pipeline, self.snapshots
        if pipeline is None or snapshots is None or snapshots._schedule is None:
            return float("inf")
        return max(pipeline.position.rpo(), snapshots.missing())

    def start(self) -> None:
        """Start an agent."""
        assert self._thread is None
        self.killed, self.pipeline = False, None
        self._stop = threading.Event()
        self._store = FaultyStore(self._objects, self._meet)
        self._leadership = Leadership(self._store, NAMES.writer, self.name)
        self._thread = threading.Thread(target=self._work, name=f"agent-{self.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it in peace."""
        if self._thread is None:
            return
        self._awake.set()
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), f"the agent of {self.name} does not end"
        self._thread, self.pipeline = None, None

    def kill(self) -> None:
        """End it as SIGKILL does: it reaches nothing any more, and what was in its memory is gone."""
        if self._thread is None:
            return
        self.killed = True
        self._store.down.set()
        self._leadership._until = float("-inf")
        self.end()

    def freeze(self) -> None:
        """Hold every request to the store, as SIGSTOP does."""
        self._awake.clear()

    def thaw(self) -> None:
        """Let it go on, knowing nothing of the time that went by."""
        self._awake.set()

    def _meet(self, what: str, name: str) -> Fault | None:
        self._awake.wait(PATIENCE_SECONDS)
        return "refused" if self.killed else self._weather(self, what, name)

    def _work(self) -> None:
        with Keeper(self._leadership):
            while not self._stop.is_set():
                if not self._leadership.held():
                    self._stop.wait(0.01)
                    continue
                place = self.client, self._store, PlainKeys(), NAMES
                session_of = _Session(self.settings, *place, self._leadership, self._metrics)
                session_of.host = self
                try:
                    session_of.run(self._stop)
                except ProgramError as error:
                    self.problems.append(error)
                    self._leadership.release(0.0 if isinstance(error, LeaseLost) else STAND_BACK_SECONDS)
                except Exception as error:
                    self.defects.append(error)
                finally:
                    self.pipeline = self.snapshots = None
