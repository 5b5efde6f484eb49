# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Random faults around the continuous log, judged by a history of what etcd acknowledged.

Every run is made from its seed: what is written, what fails and when. ``IRONSPAN_LOG_RUNS=200 pytest
tests/integration/test_backup_log_random.py`` runs more of them, ``IRONSPAN_LOG_SEED=N`` one alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ironspan.backup.errors import LeaseLost, StoreError
from ironspan.backup.etcd import rpc_pb2 as rpc
from ironspan.backup.etcd.client import ALL, EtcdClient, prefix_end
from ironspan.backup.etcd.errors import EtcdError, Unreachable
from ironspan.backup.log import sender
from ironspan.backup.log.pipeline import Pipeline, Place
from ironspan.backup.log.spool import Spool
from ironspan.backup.log_reader import read_log
from ironspan.backup.records import Coalesced, LeaseGrant, Record, Revision
from ironspan.backup.takeover import segments_of, take_over
from tests.support.backup_log import NAMES, PlainKeys
from tests.support.etcd_members import Members
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore

RUNS = int(os.environ.get("IRONSPAN_LOG_RUNS", "4"))
SEEDS = [int(os.environ["IRONSPAN_LOG_SEED"])] if "IRONSPAN_LOG_SEED" in os.environ else range(RUNS)
STEPS = 25
PREFIX = b"/registry/pods/"
ETCD_MEMBERS = 3


class Run:
    """One random run.

    Args:
        seed: makes the steps and the faults; how threads and members are timed is not in its hands.
        members: of etcd; all serve at the start and at the end.
        folder: for spools.
    """

    def __init__(self, seed: int, members: Members, folder: Path) -> None:
        self.choice = random.Random(seed)
        self.luck = random.Random(seed + 1)
        self.members, self.folder = members, folder
        self.client = EtcdClient(members.endpoints, timeout=10)
        header = self.client.header()
        self.start, self.cluster_id = header.revision, header.cluster_id
        self.faults = self.choice.choice([0.0, 0.05, 0.3])
        self.hosts = self.choice.choice([1, 1, 2])
        self.host = 0
        self.store = FaultyStore(MemoryStore(), self._fault)
        self.acknowledged: dict[int, list[tuple[bytes, bytes | None, int]]] = {}
        self.leases = [self.client.lease_grant(3600).ID for _ in range(2)]
        self.pipeline: Pipeline | None = None
        self.steps: list[str] = []

    def _fault(self, what: str, name: str) -> Fault | None:
        if what in ("append", "create_append") and self.luck.random() < self.faults:
            return self.luck.choice(["refused", "unknown"])
        return None

    # -- the agent ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start an agent on the present host, if the store can be reached."""
        if self.pipeline or self.store.down.is_set():
            return
        try:
            end = take_over(self.store, NAMES, 1, f"host {self.host}")
            self.pipeline = Pipeline(
                self.client,
                self.cluster_id,
                Place(self.store, PlainKeys(), NAMES, 1),
                end,
                Spool(self.folder / str(self.host), 64 << 20),
                after=max(self.start, end.revision),
                flush_s=0.02,
                interval_s=0.4,
            )
        except StoreError:
            return
        self.pipeline.outbox._patience = 0.05
        self.pipeline.start()

    def crash(self) -> None:
        """End the agent as a kill does: what is in memory is gone."""
        if self.pipeline:
            self.pipeline.outbox.spill = lambda: None  # type: ignore[method-assign]
            self.pipeline.stop(0)
            self.pipeline = None

    def end(self) -> None:
        """End the agent in peace."""
        if self.pipeline:
            self.pipeline.stop(0.2)
            self.pipeline = None

    # -- steps -------------------------------------------------------------------------------------

    def write(self) -> None:
        for _ in range(self.choice.randrange(1, 30)):
            with contextlib.suppress(Unreachable):
                self._write_once()

    def _write_once(self) -> None:
        key = PREFIX + b"%d" % self.choice.randrange(12)
        value = self.choice.randbytes(self.choice.choice([5, 200, 5000]))
        lease = self.choice.choice([0, 0, *self.leases])
        kind = self.choice.randrange(8)
        if kind == 0:
            deleted = self.client.delete(key)
            if deleted.deleted:
                self.acknowledged[deleted.header.revision] = [(key, None, 0)]
        elif kind == 1:
            self.client.delete(PREFIX, prefix_end(PREFIX))
        elif kind == 2:
            puts = [(PREFIX + b"t%d" % number, value, lease) for number in range(self.choice.randrange(1, 9))]
            operations = [
                rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=value, lease=lease))
                for name, _, _ in puts
            ]
            answer = self.client.txn(rpc.TxnRequest(success=operations))
            self.acknowledged[answer.header.revision] = list(puts)
        else:
            revision = self.client.put(key, value, lease=lease).header.revision
            self.acknowledged[revision] = [(key, value, lease)]

    def outage(self) -> None:
        self.store.down.set()

    def back(self) -> None:
        self.store.down.clear()

    def another_host(self) -> None:
        self.choice.choice([self.crash, self.end])()
        self.host = (self.host + 1) % self.hosts

    def two_writers(self) -> None:
        """The old agent goes on, and does not know yet that another one took over."""
        old, self.pipeline = self.pipeline, None
        self.host = (self.host + 1) % self.hosts
        self.begin()
        self.write()
        if old:
            old.outbox.spill = lambda: None  # type: ignore[method-assign]
            old.stop(0)
            assert old.failure is None or isinstance(old.failure, LeaseLost)

    def compact(self) -> None:
        """Forget what nobody needs any more: what is durable, or on the disk of the only host."""
        if self.pipeline:
            position, outbox = self.pipeline.position, self.pipeline.outbox
            revision = position.durable_revision
            if self.hosts == 1:
                revision = max(revision, outbox.spooled_revision)
            with contextlib.suppress(EtcdError):
                self.client.compact(revision)

    def kill_member(self) -> None:
        name = self.choice.choice(self.members.names)
        self.members.stop(name, kill=True)
        self.write()
        self.members.start(name)
        self.members.wait(name)

    def freeze_member(self) -> None:
        name = self.choice.choice(self.members.names)
        self.members.signal(name, signal.SIGSTOP)
        time.sleep(self.choice.choice([0.1, 0.9]))
        self.members.signal(name, signal.SIGCONT)
        self.members.wait(name)

    def pause(self) -> None:
        time.sleep(self.choice.random() * 0.2)

    def go(self) -> None:
        """Do all steps, then mend everything and wait until the log is complete."""
        frequent: list[Callable[[], None]] = [self.write] * 8 + [self.pause] * 3
        agents = [self.crash, self.end, self.outage, self.back, self.back, self.compact] * 2
        rare = [self.another_host, self.two_writers, self.kill_member, self.freeze_member]
        steps = frequent + agents + rare
        for _ in range(STEPS):
            step = self.choice.choice(steps)
            self.steps.append(step.__name__)
            step()
            self.begin()
            self._judge()
        self.faults = 0.0
        self.back()
        last = self.client.put(b"/registry/last", b"").header.revision
        until = time.monotonic() + 60
        while not self.pipeline or self.pipeline.position.durable_revision < last:
            assert time.monotonic() < until, self.pipeline and self.pipeline.failure
            self._judge()
            self.begin()
            time.sleep(0.02)
        self.end()

    def _judge(self) -> None:
        if self.pipeline and self.pipeline.failure:
            # Whether a segment was made is unknown after an unknown outcome: the next run makes another.
            assert isinstance(self.pipeline.failure, LeaseLost), self.pipeline.failure
            self.end()

    def log(self) -> list[Record]:
        take_over(self.store, NAMES, 1, "reader")
        names = [(item.name, "") for item, _ in segments_of(self.store, NAMES, 1)]
        return list(read_log(self.store, PlainKeys(), names, self.start))


def stored_in_etcd(client: EtcdClient) -> dict[bytes, tuple[t.Any, ...]]:
    return {
        kv.key: (kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
        for page in client.pages()
        for kv in page.kvs
    }


def check(run: Run, log: list[Record]) -> None:
    """Nothing acknowledged is missing, nothing is doubled, out of order or invented."""
    before: dict[bytes, tuple[t.Any, ...]] = {}
    granted: set[int] = set()
    expected = run.start + 1
    for record in log:
        if isinstance(record, LeaseGrant):
            granted.add(record.id)
            assert record.ttl_s == 3600
        assert not isinstance(record, Coalesced)
        if not isinstance(record, Revision):
            continue
        assert record.revision == expected
        expected += 1
        for event in record.events:
            assert not event.lease or event.lease in granted
            if event.put:
                fields = (event.create_revision, record.revision, event.version, event.lease)
                before[event.key] = (event.value, *fields)
            else:
                del before[event.key]
        if record.revision in run.acknowledged:
            said = [(e.key, e.value if e.put else None, e.lease) for e in record.events]
            assert said == run.acknowledged[record.revision]
    assert max(run.acknowledged, default=0) < expected
    now = {key: kv for key, kv in stored_in_etcd(run.client).items() if kv[2] > run.start}
    assert before == now


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_in_the_log_once_and_in_order(
    seed: int, members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "BACKOFF_S", (0.005, 0.05))
    run = Run(seed, members, tmp_path)
    run.client.delete(ALL, ALL)
    run.start = run.client.header().revision
    try:
        run.go()
        check(run, run.log())
    except BaseException as error:
        error.add_note(f"seed {seed}: {' '.join(run.steps)}")
        raise
    finally:
        run.crash()
        run.client.close()
