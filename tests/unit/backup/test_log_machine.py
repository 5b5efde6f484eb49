# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writers that come, go and do not know that they are gone, over a store that fails: nothing is lost."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ironspan.backup import gc
from ironspan.backup.catalogue import catalogue
from ironspan.backup.chain import Point, choose, last_seen
from ironspan.backup.log_reader import read_log
from ironspan.backup.records import Progress, Revision
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.takeover import take_over
from ironspan.program.errors import ProgramError, ServiceError
from tests.support.backup_log import NAMES, START_MS, PlainKeys, add_epoch, add_snapshot, revision
from tests.support.memory_store import MemoryStore

KEYS = PlainKeys()
FIRST = 10
faults = st.lists(st.sampled_from(["", "before", "after"]), max_size=3)


@dataclasses.dataclass(frozen=True)
class Keep:
    hourly: int = 1
    daily: int = 1
    weekly: int = 1
    monthly: int = 1


class Log(RuleBasedStateMachine):
    """The agents of a cluster. etcd's history is known beforehand: ``revision(n)`` for every n."""

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore()
        add_epoch(self.store)
        add_snapshot(self.store, KEYS, FIRST)
        self.stored = FIRST
        """What the store acknowledged, to whomever."""
        self.writers: list[SegmentWriter] = []
        self.torn: set[str] = set()

    @rule(faults=faults)
    def take_over(self, faults: list[str]) -> None:
        self.store.faults = list(faults)
        try:
            end = take_over(self.store, NAMES, 1, "agent")
            after = None if end.name else FIRST
            self.writers.append(SegmentWriter.begin(self.store, KEYS, NAMES, 1, end, after))
        except ServiceError:
            pass
        self.store.faults = []

    @rule(data=st.data(), count=st.integers(1, 4), more=st.booleans(), faults=faults)
    def write(self, data: st.DataObject, count: int, more: bool, faults: list[str]) -> None:
        writer = self._one(data)
        if writer is None:
            return
        first = writer.revision + 1
        batch = [revision(number) for number in range(first, first + count)]
        if more:
            # The last one in two parts; its writer may be lost between them.
            event = batch[-1].events[0]
            batch[-1:] = [
                dataclasses.replace(batch[-1], more=True),
                dataclasses.replace(batch[-1], events=(event,)),
            ]
        self._act(writer, faults, lambda: writer.append(batch))

    @rule(data=st.data(), faults=faults)
    def flush(self, data: st.DataObject, faults: list[str]) -> None:
        writer = self._one(data)
        if writer is not None:
            self._act(writer, faults, writer.flush)

    @rule(data=st.data(), faults=faults)
    def idle(self, data: st.DataObject, faults: list[str]) -> None:
        writer = self._one(data)
        if writer is not None:
            record = Progress(writer.revision, START_MS + writer.revision * 1000)
            self._act(writer, faults, lambda: writer.append([record]))

    @rule(data=st.data(), faults=faults)
    def rotate(self, data: st.DataObject, faults: list[str]) -> None:
        writer = self._one(data)
        if writer is None:
            return

        def next_segment() -> None:
            end = writer.seal("agent")
            after = None if end.name else FIRST
            self.writers.append(SegmentWriter.begin(self.store, KEYS, NAMES, 1, end, after))

        self._act(writer, faults, next_segment)
        if writer in self.writers:
            self.writers.remove(writer)

    @rule(size=st.integers(1, 60))
    def crash_within_an_append(self, size: int) -> None:
        """Leave a part of a frame at the log's end, as a store without whole appends might."""
        segments = catalogue(self.store, NAMES).segments
        if not segments:
            return
        name = max(segments, key=lambda segment: segment.number).name
        last = self.store.things[name].data
        if b'"sealed":true' not in last and last and name not in self.torn:
            last += bytes(last[:size])
            self.torn.add(name)

    @rule()
    def snapshot(self) -> None:
        if not any(one.revision == self.stored for one in catalogue(self.store, NAMES).snapshots):
            add_snapshot(self.store, KEYS, self.stored)

    @rule(faults=faults)
    def collect(self, faults: list[str]) -> None:
        self.store.faults = list(faults)
        gc.collect(self.store, NAMES, Keep())
        self.store.faults = []

    @invariant()
    def nothing_stored_is_lost(self) -> None:
        found = catalogue(self.store, NAMES)
        assert not found.damaged
        chain = choose(self.store, found, Point(), KEYS)
        segments = [(link.segment.name, link.digest) for link in chain.links]
        log = list(read_log(self.store, KEYS, segments, chain.snapshot.revision))
        numbers = [record.revision for record in log if isinstance(record, Revision)]
        assert numbers == list(range(chain.snapshot.revision + 1, chain.revision + 1))
        assert chain.revision >= self.stored
        assert last_seen(self.store, found) == chain.revision
        for record in log:
            if isinstance(record, Revision):
                assert record.events[0] == revision(record.revision).events[0]

    def _one(self, data: st.DataObject) -> SegmentWriter | None:
        return data.draw(st.sampled_from(self.writers)) if self.writers else None

    def _act(self, writer: SegmentWriter, faults: list[str], act: object) -> None:
        self.store.faults = list(faults)
        try:
            act()  # type: ignore[operator]
        except ServiceError as error:
            if not error.retryable:
                self.writers.remove(writer)
        except ProgramError:
            # Sealed, or a part of a revision that is not its own.
            self.writers.remove(writer)
        self.store.faults = []
        self.stored = max(self.stored, writer.durable)


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=6, stateful_step_count=20)


@pytest.mark.long
def test_a_great_many_histories() -> None:
    many = settings(max_examples=500, stateful_step_count=40)
    run_state_machine_as_test(Log, settings=many)
