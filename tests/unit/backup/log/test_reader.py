# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The reader goes on at another member when one breaks off, stalls or lags, and says what it cannot fix."""

from __future__ import annotations

import queue
import threading
import time
import typing as t
from collections.abc import Callable, Iterator

import pytest

from ironspan.backup.errors import WrongCluster
from ironspan.backup.log import watch as module
from ironspan.backup.log.group import Gap
from ironspan.backup.log.inbox import Inbox
from ironspan.backup.log.position import Position
from ironspan.backup.log.watch import Reader
from ironspan.backup.records import Progress, Record, Revision
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.errors import Compacted, EtcdError, Unreachable
from ironspan.program.errors import ProgramError
from tests.support.waiting import until

CLUSTER = 7
Step = rpc.WatchResponse | Exception | float


def header(revision: int, cluster: int = CLUSTER, term: int = 2) -> rpc.ResponseHeader:
    return rpc.ResponseHeader(revision=revision, cluster_id=cluster, raft_term=term)


def created(revision: int = 9) -> rpc.WatchResponse:
    return rpc.WatchResponse(header=header(revision), created=True)


def events(*revisions: int, fragment: bool = False, term: int = 2) -> rpc.WatchResponse:
    found = [
        rpc.Event(type=rpc.Event.PUT, kv=rpc.KeyValue(key=b"k", mod_revision=revision))
        for revision in revisions
    ]
    return rpc.WatchResponse(header=header(revisions[-1], term=term), events=found, fragment=fragment)


class FakeWatch:
    """Gives what a test wrote down; then is silent, but for answers to requests for progress.

    A number is a silence of so many seconds, in which a request is not answered.
    """

    def __init__(self, steps: list[Step], progress: int | None) -> None:
        self._steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._progress = progress
        self._cancelled = threading.Event()
        self.asked = 0
        for step in steps:
            self.say(step)

    def __iter__(self) -> Iterator[rpc.WatchResponse]:
        while True:
            step = self._steps.get()
            if isinstance(step, float):
                if self._cancelled.wait(step):
                    raise Unreachable("cancelled.")
            elif isinstance(step, Exception):
                raise step
            else:
                yield step

    def say(self, step: Step) -> None:
        self._steps.put(step)

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def request_progress(self) -> None:
        self.asked += 1
        if self._progress is not None:
            self._steps.put(rpc.WatchResponse(header=header(self._progress), watch_id=-1))

    def cancel(self) -> None:
        self._cancelled.set()
        self._steps.put(Unreachable("cancelled."))


class FakeEtcd:
    """Members of which each watch gives the next of the written steps; the last one leads at first."""

    endpoints = ("a", "b", "c")

    def __init__(self, *plan: list[Step], progress: int | None = None, silent: str = "") -> None:
        self._plan = list(plan)
        self._silent = silent
        self._progress = progress
        self.watches: list[tuple[str, int, FakeWatch]] = []
        self.revision = 99
        self.reads = 0
        self.leader = "c"
        self.asked: list[str] = []

    def header(self, **_options: object) -> rpc.ResponseHeader:
        self.reads += 1
        return header(self.revision)

    def status(self, endpoint: str, timeout: float) -> rpc.StatusResponse:
        self.asked.append(endpoint)
        if endpoint in self._silent:
            raise Unreachable("silent.")
        member = rpc.ResponseHeader(member_id=ord(endpoint))
        return rpc.StatusResponse(header=member, leader=ord(self.leader))

    def watch(self, endpoint: str, start: int, *, pause_s: float) -> FakeWatch:
        made = FakeWatch(self._plan.pop(0) if self._plan else [created()], self._progress)
        self.watches.append((endpoint, start, made))
        return made


class Setting:
    def __init__(
        self, etcd: FakeEtcd, next_revision: int = 10, interval_s: float = 30, inbox_bytes: int = 1 << 20
    ) -> None:
        self.etcd = etcd
        self.inbox = Inbox(inbox_bytes)
        self.position = Position(next_revision - 1)
        self.reader = Reader(
            t.cast("t.Any", etcd),
            self.inbox,
            self.position,
            CLUSTER,
            next_revision,
            interval_s,
            wall=lambda: 1.5,
        )
        self.records: list[Record] = []

    def wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not condition():
            self.records += self.inbox.take(1 << 20)
            assert time.monotonic() < end
            time.sleep(0.002)
        self.records += self.inbox.take(1 << 20)

    def revisions(self) -> list[tuple[int, bool]]:
        return [(r.revision, r.more) for r in self.records if isinstance(r, Revision)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Setting]]:
    monkeypatch.setattr(module, "BACKOFF_S", (0.001, 0.002))
    made: list[Setting] = []

    def start(*plan: list[Step], progress: int | None = None, silent: str = "", **options: t.Any) -> Setting:
        made.append(Setting(FakeEtcd(*plan, progress=progress, silent=silent), **options))
        made[-1].reader.start()
        return made[-1]

    yield start
    for setting in made:
        setting.reader.stop()


def test_it_reads_and_goes_on_behind_what_it_has(run: Callable[..., Setting]) -> None:
    broken = Unreachable("the connection broke.")
    setting = run([created(), events(10, 11), broken], [broken], [created(), events(12)])
    setting.wait(lambda: setting.position.received_revision == 12)
    assert setting.revisions() == [(10, False), (11, False), (12, False)]
    assert [(endpoint, start) for endpoint, start, _ in setting.etcd.watches] == [
        ("a", 10),
        ("b", 12),
        ("c", 12),
    ]
    assert (setting.reader.connections, setting.reader.problem) == (3, broken)
    assert setting.records[0] == Revision(10, 1500, setting.records[0].events, behind=True)  # type: ignore[union-attr]
    late = [record.behind for record in setting.records if isinstance(record, Revision)]
    assert late == [True, False, False]


def test_a_transaction_that_broke_off_is_gone_on_with(run: Callable[..., Setting]) -> None:
    first = [created(), events(10, 10, fragment=True), events(10, fragment=True), Unreachable("broke.")]
    setting = run(first, [created(), events(10, 10, 10, 10, 11)])
    setting.wait(lambda: setting.position.received_revision == 11)
    assert setting.revisions() == [(10, True), (10, False), (11, False)]
    assert [len(r.events) for r in setting.records if isinstance(r, Revision)] == [2, 2, 1]


def test_history_that_is_gone_is_a_gap(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10), Unreachable("broke.")], [Compacted("gone.", compact_revision=90)])
    setting.wait(setting.reader.ended.is_set)
    failure = setting.reader.failure
    assert isinstance(failure, Gap)
    assert (failure.gap, failure.resume) == ((11, 89), 90)
    assert setting.revisions() == [(10, False)]


def test_history_that_goes_while_the_reader_waits_is_a_gap_behind_what_it_has(
    run: Callable[..., Setting],
) -> None:
    setting = run([created(), events(10, 11), Compacted("gone.", compact_revision=90)])
    setting.wait(setting.reader.ended.is_set)
    assert isinstance(setting.reader.failure, Gap)
    assert setting.reader.failure.gap == (12, 89)


def test_another_cluster_is_refused(run: Callable[..., Setting]) -> None:
    setting = run([rpc.WatchResponse(header=header(9, cluster=8), created=True)])
    setting.wait(setting.reader.ended.is_set)
    assert isinstance(setting.reader.failure, WrongCluster)


def test_a_defect_is_no_silence(run: Callable[..., Setting]) -> None:
    setting = run([created(), t.cast("rpc.WatchResponse", "nonsense")])
    setting.wait(setting.reader.ended.is_set)
    assert isinstance(setting.reader.failure, ProgramError)
    assert "nonsense" not in str(type(setting.reader.failure))


@pytest.mark.parametrize("error", [Unreachable("no leader."), EtcdError("the watch was ended: why.")])
def test_every_other_end_is_tried_again(run: Callable[..., Setting], error: EtcdError) -> None:
    setting = run(*[[error]] * 7, [created(), events(10)])
    setting.wait(lambda: setting.revisions() == [(10, False)])
    assert [endpoint for endpoint, *_ in setting.etcd.watches] == [*"abcabcab"]


def test_a_member_that_answers_is_left_in_peace(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10)], progress=10, interval_s=1.2)
    setting.wait(lambda: setting.etcd.watches and setting.etcd.watches[0][2].asked >= 3)
    assert (setting.reader.stalls, len(setting.etcd.watches)) == (0, 1)
    setting.position.stored(10)
    setting.etcd.revision = 10
    setting.wait(lambda: setting.position.rpo() < 1)


def test_a_member_that_does_not_is_given_up(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10)], [created(), events(11)], interval_s=0.4)
    setting.wait(lambda: setting.position.received_revision == 11)
    assert setting.reader.stalls == 1
    first = setting.etcd.watches[0][2]
    assert first.cancelled and first.asked == 1


def test_an_idle_etcd_that_gives_no_progress_is_no_stall(run: Callable[..., Setting]) -> None:
    setting = run([created()], interval_s=1.2)
    setting.etcd.revision = 9
    setting.wait(lambda: setting.etcd.reads >= 5)
    assert (setting.reader.stalls, len(setting.etcd.watches)) == (0, 1)
    setting.wait(lambda: setting.position.rpo() < 1)
    setting.etcd.revision = 10
    setting.wait(lambda: setting.reader.stalls == 1)


def test_one_that_is_only_slow_is_given_more_time(run: Callable[..., Setting]) -> None:
    slow: list[Step] = [created(), 1.25, events(10), 30.0]
    setting = run(slow, slow, slow, slow, slow, slow, interval_s=0.2)
    setting.wait(lambda: setting.position.received_revision == 10)
    assert 2 <= setting.reader.stalls <= 4


def test_a_large_response_may_take_its_time(run: Callable[..., Setting]) -> None:
    steps: list[Step] = [created(), events(10, fragment=True), 0.5, events(10, fragment=True), 0.5]
    setting = run([*steps, events(10, 11), 30.0], interval_s=0.25)
    setting.wait(lambda: setting.position.received_revision == 11)
    assert setting.reader.stalls == 0


def test_a_member_that_lags_is_given_up(run: Callable[..., Setting]) -> None:
    setting = run([created(5)], [created(), events(10)], progress=5, interval_s=1.2)
    setting.wait(lambda: setting.position.received_revision == 10)
    assert "revision 5" in str(setting.reader.problem)
    assert setting.reader.stalls == 0


def test_the_watchdog_leaves_a_reader_alone_that_waits_for_the_inbox(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10), events(11)], interval_s=0.2, inbox_bytes=1)
    until(lambda: setting.position.received_revision == 10)
    time.sleep(0.6)
    assert (setting.reader.stalls, setting.position.received_revision) == (0, 10)
    setting.wait(lambda: setting.position.received_revision == 11)


def test_a_member_that_is_elected_is_left(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10)], [created(10), events(11)], interval_s=2)
    setting.wait(lambda: setting.position.received_revision == 10)
    setting.etcd.leader = "a"
    setting.etcd.watches[0][2].say(events(11, term=3))
    setting.wait(lambda: len(setting.etcd.watches) == 2)
    assert [(endpoint, start) for endpoint, start, _ in setting.etcd.watches] == [("a", 10), ("b", 12)]
    assert setting.revisions() == [(10, False), (11, False)]
    assert (setting.reader.problem, setting.reader.stalls) == (None, 0)


def test_an_election_of_another_one_changes_nothing(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10)], interval_s=1, progress=10)
    setting.wait(lambda: setting.position.received_revision == 10)
    asked = len(setting.etcd.asked)
    setting.etcd.leader = "b"
    setting.etcd.watches[0][2].say(events(11, term=3))
    setting.wait(lambda: len(setting.etcd.asked) > asked)
    setting.etcd.watches[0][2].say(events(12, term=3))
    time.sleep(0.3)
    assert setting.etcd.asked[asked:] == ["a"]
    assert len(setting.etcd.watches) == 1


def test_the_only_one_that_answers_is_read_from_although_it_leads(run: Callable[..., Setting]) -> None:
    setting = run([created(), events(10)], interval_s=1, progress=10, silent="ab")
    setting.wait(lambda: setting.position.received_revision == 10)
    time.sleep(0.3)
    assert [endpoint for endpoint, *_ in setting.etcd.watches] == ["c"]


def test_an_idle_cluster_is_said_to_be_idle(
    run: Callable[..., Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROGRESS_S", 0.05)
    setting = run([created()], progress=9, interval_s=0.08)
    setting.wait(lambda: Progress(9, 1500) in setting.records)


def test_stopping_ends_a_reader_that_waits(run: Callable[..., Setting]) -> None:
    setting = run([created()])
    setting.wait(lambda: setting.reader.connections)
    setting.reader.stop()
    assert setting.reader.ended.is_set()
    assert setting.reader.failure is None
