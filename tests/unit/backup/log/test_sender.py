# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whatever the store does, the log in it is whole, in order, and of one writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.backup import segment
from ironspan.backup.errors import ChainError
from ironspan.backup.log import sender as module
from ironspan.backup.log.batch import Cutter
from ironspan.backup.log.coalesce import NODE_LEASES
from ironspan.backup.log.outbox import Outbox
from ironspan.backup.log.pipeline import Place
from ironspan.backup.log.position import Position
from ironspan.backup.log.sender import Sender
from ironspan.backup.log.spool import Spool
from ironspan.backup.log_reader import read_log
from ironspan.backup.records import Coalesced, Event, Record, Revision
from ironspan.backup.takeover import segments_of, take_over
from ironspan.program.errors import Forbidden, LeaseLost, Refused, ServiceError
from tests.support.backup_log import NAMES, PlainKeys, revision
from tests.support.memory_store import MemoryStore

LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", (0.001, 0.002))
    monkeypatch.setattr(module, "_IDLE_S", 0.01)


class Setting:
    """A sender on a store in memory, with an outbox to fill."""

    def __init__(self, folder: Path, store: MemoryStore, may_write: Callable[[], bool] = lambda: True):
        self.store = store
        self.place = Place(store, PlainKeys(), NAMES, 1)
        self.spool = Spool(folder, LIMIT)
        self.outbox = Outbox(self.spool)
        self.position = Position(0)
        writer = self.place.begin(take_over(store, NAMES, 1, "first"), 0)
        self.sender = Sender(self.outbox, writer, self.place.begin, self.position, may_write, holder="test")
        self.cutter = Cutter(1)

    def put(self, *records: Record) -> None:
        for batch in self.cutter.cut(records):
            self.outbox.put(batch)

    def end(self, drain_s: float = 60) -> None:
        self.sender.stop(drain_s)
        self.outbox.spill()

    def wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.001)

    def log(self) -> list[Record]:
        take_over(self.store, NAMES, 1, "reader")
        names = [item.name for item, _ in segments_of(self.store, NAMES, 1)]
        return list(read_log(self.store, PlainKeys(), [(name, "") for name in names], 0))


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path / "spool", MemoryStore())
    yield made
    made.sender.stop(0)


FAULTS = st.lists(st.sampled_from(["", "before", "after"]), max_size=12)


@settings(max_examples=40)
@given(FAULTS, st.lists(st.integers(1, 4), min_size=1, max_size=6), st.sampled_from([200, 1 << 20]))
def test_faults_of_the_store_lose_nothing_and_double_nothing(
    tmp_path_factory: pytest.TempPathFactory, faults: list[str], sizes: list[int], segment_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BACKOFF_S", (0.001, 0.002))
        patch.setattr(segment, "SEGMENT_BYTES", segment_bytes)
        made = Setting(tmp_path_factory.mktemp("sender"), MemoryStore())
        records = [revision(number) for number in range(1, sum(sizes) + 1)]
        made.store.faults = list(faults)
        at = 0
        made.sender.start()
        for size in sizes:
            made.put(*records[at : at + size])
            at += size
        made.end()
        made.store.faults = []
        # A segment whose making has an unknown outcome is for the next writer: nobody knows whose it is.
        ended = made.sender.failure
        assert ended is None or isinstance(ended, LeaseLost)
        log = made.log()
        assert log == records[: len(log)]
        assert made.position.durable_revision == len(log)
        again = Spool(made.spool.folder, LIMIT)
        assert (ended is None) <= (len(log) == len(records))
        assert again.recover(len(log)) == len(records) + 1


def test_an_outage_is_caught_up_in_few_appends(setting: Setting) -> None:
    setting.sender.start()
    setting.put(revision(1))
    setting.wait(lambda: setting.position.durable_revision == 1)
    setting.store.faults = ["before"] * 30
    for number in range(2, 200):
        setting.put(revision(number))
    setting.wait(lambda: setting.position.durable_revision == 199)
    assert setting.sender.appends < 60
    assert setting.sender.problem is None
    setting.end()
    assert setting.log() == [revision(number) for number in range(1, 200)]


def test_another_writer_ends_it_and_what_it_had_goes_to_disk(setting: Setting) -> None:
    setting.sender.start()
    setting.put(revision(1))
    setting.wait(lambda: setting.position.durable_revision == 1)
    other = setting.place.begin(take_over(setting.store, NAMES, 1, "other"))
    setting.put(revision(2))
    assert setting.sender.ended.wait(60)
    assert isinstance(setting.sender.failure, LeaseLost)
    other.append([revision(2), revision(3)])
    setting.end()
    assert setting.log() == [revision(1), revision(2), revision(3)]
    assert Spool(setting.spool.folder, LIMIT).recover(1) == 3


def test_a_store_that_lies_ends_it(setting: Setting) -> None:
    setting.store.faults = ["lie"]
    setting.sender.start()
    setting.put(revision(1))
    setting.wait(lambda: not setting.outbox)
    setting.put(revision(2))
    assert setting.sender.ended.wait(60)
    assert isinstance(setting.sender.failure, ChainError)


def test_nothing_is_sent_while_the_lease_is_not_held(tmp_path: Path) -> None:
    held = False
    made = Setting(tmp_path, MemoryStore(), lambda: held)
    made.sender.start()
    made.put(revision(1))
    time.sleep(0.05)
    assert made.store.requests["append"] == 0
    held = True
    made.wait(lambda: made.position.durable_revision == 1)
    held = False
    made.put(revision(2))
    time.sleep(0.02)
    made.end(drain_s=0)
    assert made.position.durable_revision == 1
    assert Spool(made.spool.folder, LIMIT).recover(1) == 3


@pytest.mark.parametrize(
    "error", [Forbidden("no right"), ServiceError("down", retryable=True, retry_after=7)]
)
def test_a_store_that_refuses_is_asked_again_when_it_said(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, error: ServiceError
) -> None:
    append, calls = setting.store.append, [0]
    waits: list[float] = []

    def refusing(name: str, data: bytes, position: int) -> int:
        calls[0] += 1
        if calls[0] < 3:
            raise error
        return append(name, data, position)

    monkeypatch.setattr(setting.store, "append", refusing)
    monkeypatch.setattr(setting.sender, "_wait", waits.append)
    setting.put(revision(1))
    setting.sender.start()
    setting.wait(lambda: setting.position.durable_revision == 1)
    assert len(waits) == 2
    assert all(seconds == 7 if error.retry_after else seconds < 0.01 for seconds in waits)


@pytest.mark.parametrize(
    ("error", "longest"), [(Refused("fix it"), 60.0), (ServiceError("down", retryable=True), 1.5)]
)
def test_what_an_operator_has_to_fix_is_tried_less_and_less_often_and_heals(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, error: ServiceError, longest: float
) -> None:
    append = setting.store.append
    waits: list[float] = []

    def refusing(name: str, data: bytes, position: int) -> int:
        if len(waits) < 20:
            raise error
        return append(name, data, position)

    monkeypatch.setattr(module, "BACKOFF_S", (0.1, 1.5))
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    monkeypatch.setattr(setting.store, "append", refusing)
    monkeypatch.setattr(setting.sender, "_wait", waits.append)
    setting.put(revision(1))
    setting.sender.start()
    setting.wait(lambda: setting.position.durable_revision == 1)
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == longest


def test_heartbeats_of_one_append_are_coalesced(setting: Setting) -> None:
    key = NODE_LEASES + b"rack-1"
    beats = [Revision(number, number, (Event(True, key, b"v", 1, number + 1),)) for number in (1, 2, 3)]
    setting.put(*beats)
    setting.sender.start()
    setting.end()
    assert setting.log() == [Coalesced(1, 1, key), Coalesced(2, 2, key), beats[2]]


def test_a_stop_drains_first(setting: Setting) -> None:
    for number in range(1, 50):
        setting.put(revision(number))
    setting.sender.start()
    setting.end()
    assert (len(setting.log()), len(setting.outbox)) == (49, 0)
