# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent's parts alone: lease, epochs, schedule, copies, metrics."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from ironspan.backup import manifest
from ironspan.backup.agent import epoch as epochs
from ironspan.backup.agent.copier import Copier
from ironspan.backup.agent.metrics import KINDS, PREFIX, Metrics
from ironspan.backup.agent.schedule import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Schedule
from ironspan.backup.errors import ChainError, WrongCluster
from ironspan.backup.file_store import FileStore
from ironspan.backup.log.spool import SpoolError
from ironspan.backup.manifest import Epoch
from ironspan.backup.names import Names
from ironspan.etcd.errors import Compacted, Unreachable
from ironspan.program.errors import AlreadyThere, KeyMissing, LeaseLost, Refused, RoleMissing, ServiceError
from ironspan.program.leader import MARGIN_SECONDS, REFUSED_SECONDS, SECONDS, Leadership
from ironspan.program.loop import Repeating
from tests.support.backup_proof import proof
from tests.support.clock import Clock
from tests.support.faulty_store import Fault, FaultyStore

NAMES = Names("site", proof())


@pytest.fixture
def behind(tmp_path: Path, clock: Clock) -> FileStore:
    return FileStore(tmp_path / "first", clock=clock)


@pytest.fixture
def store(behind: FileStore) -> FaultyStore:
    return FaultyStore(behind)


@pytest.fixture
def lead(store: FaultyStore, clock: Clock) -> Callable[[str], Leadership]:
    return lambda holder: Leadership(store, NAMES.writer, holder, clock)


# -- lease -----------------------------------------------------------------------------------------


def test_one_of_two_may_write(lead: Callable[[str], Leadership], clock: Clock) -> None:
    first, second = lead("a"), lead("b")
    assert first.step()
    assert not second.step()
    assert first.held()
    assert not second.held()
    clock.now += SECONDS - 1
    assert first.step()
    clock.now += SECONDS - 1
    assert not second.step()
    first.release()
    assert second.step()


def test_writing_ends_before_the_lease_does(lead: Callable[[str], Leadership], clock: Clock) -> None:
    first, second = lead("a"), lead("b")
    first.step()
    clock.now += SECONDS - MARGIN_SECONDS - 0.1
    assert first.held()
    clock.now += 0.2
    assert not first.held()
    assert not second.step()
    clock.now += MARGIN_SECONDS
    assert second.step()
    assert not first.step()
    assert not first.held()
    assert first.refusals == 1


def test_a_slow_renewal_counts_from_when_it_was_sent(
    lead: Callable[[str], Leadership], store: FaultyStore, clock: Clock
) -> None:
    def slow(what: str, name: str) -> Fault | None:
        clock.now += 8 if what == "renew" else 0
        return None

    leader = lead("a")
    leader.step()
    store.fault = slow
    assert leader.step()
    assert leader.remaining() == SECONDS - MARGIN_SECONDS - 8


def test_an_outage_ends_writing_and_its_end_begins_it_again(
    lead: Callable[[str], Leadership], store: FaultyStore, clock: Clock
) -> None:
    leader = lead("a")
    leader.step()
    store.down.set()
    clock.now += 3
    assert leader.step()
    clock.now += SECONDS
    assert not leader.step()
    assert not leader.held()
    store.down.clear()
    while not leader.step():
        clock.now += leader.pause()
    assert leader.held()
    assert leader.refusals == 0


def test_who_stands_back_lets_another_have_it(lead: Callable[[str], Leadership], clock: Clock) -> None:
    first, second = lead("a"), lead("b")
    first.step()
    first.release(30)
    assert first.pause() == 30
    clock.now += 29
    assert not first.step()
    assert first.pause() == 1
    assert second.step()
    second.release()
    clock.now += 2
    assert first.step()


def test_a_standby_leaves_a_store_that_comes_back_to_the_agent_with_the_spool(
    lead: Callable[[str], Leadership], store: FaultyStore, clock: Clock
) -> None:
    active, standby = lead("a"), lead("b")
    active.step()
    store.down.set()
    active.step()
    standby.step()
    assert standby.pause() > 3 * active.pause()


def test_a_release_that_the_store_does_not_take_is_no_failure(
    lead: Callable[[str], Leadership], store: FaultyStore
) -> None:
    leader = lead("a")
    leader.step()
    store.down.set()
    leader.release()
    assert leader.remaining() == 0


def test_a_store_that_lacks_a_role_is_asked_every_minute_until_it_has_it(
    lead: Callable[[str], Leadership], store: FaultyStore, clock: Clock
) -> None:
    store.fault = lambda what, name: "forbidden"
    leader = lead("a")
    begun = clock.now
    while clock.now < begun + 600:
        assert not leader.step()
        clock.now += leader.pause()
    assert len(store.calls) == 600 / REFUSED_SECONDS
    store.fault = lambda what, name: None
    assert leader.step()


def test_a_role_that_is_taken_away_is_asked_for_every_minute_once_the_lease_is_over(
    lead: Callable[[str], Leadership], store: FaultyStore, clock: Clock
) -> None:
    leader = lead("a")
    leader.step()
    store.fault = lambda what, name: "forbidden"
    assert leader.step()
    assert leader.pause() < 2
    clock.now += SECONDS
    assert not leader.step()
    assert leader.pause() == REFUSED_SECONDS
    store.fault = lambda what, name: None
    assert leader.step()


# -- epochs ----------------------------------------------------------------------------------------


def test_an_empty_store_gets_its_first_epoch_once(store: FaultyStore) -> None:
    made = epochs.open_epoch(store, NAMES, 0xABC, 5.5)
    assert made == Epoch(1, "abc", 5)
    assert epochs.open_epoch(store, NAMES, 0xABC, 99.0) == made


def test_another_cluster_is_refused_and_nothing_is_written(store: FaultyStore) -> None:
    epochs.open_epoch(store, NAMES, 0xABC, 5)
    store.calls.clear()
    with pytest.raises(WrongCluster, match="belongs to the etcd cluster abc; this one is def"):
        epochs.open_epoch(store, NAMES, 0xDEF, 6)
    assert {what for what, _ in store.calls} == {"list", "size", "read"}


def test_the_newest_epoch_counts(store: FaultyStore) -> None:
    for number, cluster in ((1, "a"), (2, "b"), (10, "c")):
        name = NAMES.epoch(number)
        store.put(name, [manifest.dump(Epoch(number, cluster, 1), name, NAMES.proof)])
    assert epochs.open_epoch(store, NAMES, 0xC, 1).epoch == 10
    for cluster_id in (0xA, 0xB):
        with pytest.raises(WrongCluster):
            epochs.open_epoch(store, NAMES, cluster_id, 1)


def test_two_agents_that_open_an_empty_store_agree(store: FaultyStore, behind: FileStore) -> None:
    def race(what: str, name: str) -> Fault | None:
        if what == "put":
            behind.put(name, [manifest.dump(Epoch(1, "abc", 1), name, NAMES.proof)])
        return None

    store.fault = race
    assert epochs.open_epoch(store, NAMES, 0xABC, 2).created == 1
    store.fault = lambda what, name: None
    with pytest.raises(WrongCluster):
        epochs.open_epoch(store, NAMES, 0xDEF, 2)


# -- schedule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "due_after"),
    [(None, 0), (5000, 0), (3600, 0), (600, 3000), (0, 3600), (-50, 0)],
    ids=["none yet", "old", "just old enough", "young", "new", "of the future"],
)
def test_the_age_of_the_newest_decides(clock: Clock, age: float | None, due_after: float) -> None:
    schedule = Schedule(3600, age, clock)
    if due_after:
        clock.now += due_after - 1
        assert not schedule.due()
        clock.now += 1
    assert schedule.due()


def test_snapshots_begin_at_even_distances(clock: Clock) -> None:
    schedule = Schedule(3600, None, clock)
    begun = clock.now
    clock.now += 900
    schedule.taken(begun)
    clock.now = begun + 3599
    assert not schedule.due()
    schedule.ask()
    assert schedule.due()


def test_failures_wait_longer_each_time_and_success_forgets_them(clock: Clock) -> None:
    schedule = Schedule(3600, None, clock)
    pauses = []
    for _ in range(9):
        schedule.failed()
        begun = clock.now
        while not schedule.due():
            clock.now += 1
        pauses.append(clock.now - begun)
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    schedule.taken(clock.now)
    schedule.failed()
    clock.now += FIRST_PAUSE_SECONDS
    assert schedule.due()


# -- copies ----------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> FaultyStore:
    return FaultyStore(FileStore(tmp_path / "copy"))


def all_of(store: FaultyStore) -> dict[str, bytes]:
    return {item.name: b"".join(store.behind.read(item.name)) for item in store.behind.list("")}


def fill(store: FaultyStore) -> None:
    store.put(NAMES.epoch(1), [b"epoch"])
    store.put(NAMES.snapshot_data(1, f"{5:020d}-7"), [b"da", b"ta"])
    store.put(NAMES.snapshot_manifest(1, f"{5:020d}-7"), [b"manifest"])
    store.put(NAMES.verdict(1, f"{5:020d}-7", 9), [b"verdict"])
    store.put(NAMES.recovery(9), [b"bundle"])
    store.create_append(NAMES.log(1, 1, 1))
    store.append(NAMES.log(1, 1, 1), b"frame", 0)


def test_a_copy_has_the_same_names_and_bytes_and_no_writer(store: FaultyStore, copy: FaultyStore) -> None:
    fill(store)
    store.acquire(NAMES.writer, SECONDS, "a")
    store.put("site/probe-of-a-check", [b"x"])
    counted: list[int] = []
    copier = Copier(store, lambda: copy, NAMES, counted.append)
    copier.logs()
    copier.objects()
    own = {NAMES.writer, "site/probe-of-a-check"}
    expected = {name: data for name, data in all_of(store).items() if name not in own}
    assert len(expected) == 6
    assert all_of(copy) == expected
    assert sum(counted) == sum(map(len, expected.values()))


def test_a_log_is_brought_up_to_its_length_again_and_again(store: FaultyStore, copy: FaultyStore) -> None:
    fill(store)
    copier, name = Copier(store, lambda: copy, NAMES), NAMES.log(1, 1, 1)
    for data in (b"a" * 10, b"b" * (5 << 20)):
        for start in range(0, len(data), 1 << 20):
            store.append(name, data[start : start + (1 << 20)], store.size(name))
        copier.logs()
        assert all_of(copy)[name] == all_of(store)[name]
    copy.calls.clear()
    copier.logs()
    assert [what for what, _ in copy.calls] == ["list"]


def test_what_a_snapshot_consists_of_is_there_before_its_manifest(
    store: FaultyStore, copy: FaultyStore
) -> None:
    fill(store)
    copy.fault = lambda what, name: "refused" if what == "put" and name.endswith("/data") else None
    with pytest.raises(ServiceError):
        Copier(store, lambda: copy, NAMES).objects()
    assert not any(name.endswith("manifest.json") for name in all_of(copy))
    copy.fault = lambda what, name: None
    Copier(store, lambda: copy, NAMES).objects()
    assert any(name.endswith("manifest.json") for name in all_of(copy))


def test_an_unknown_outcome_is_seen_in_the_next_round(store: FaultyStore, copy: FaultyStore) -> None:
    fill(store)
    copier = Copier(store, lambda: copy, NAMES)
    copy.fault = lambda what, name: "unknown" if what in ("append", "put") else None
    for step in (copier.logs, copier.objects):
        with pytest.raises(ServiceError):
            step()
    copy.fault = lambda what, name: None
    copier.logs()
    copier.objects()
    assert all_of(copy) == all_of(store)


def test_two_agents_copy_without_harm(store: FaultyStore, copy: FaultyStore) -> None:
    fill(store)
    name = NAMES.log(1, 1, 1)

    def other(what: str, about: str) -> Fault | None:
        if what == "append":
            copy.fault = lambda what, name: None
            copy.behind.append(name, b"frame", 0)
        return None

    copy.fault = other
    Copier(store, lambda: copy, NAMES).logs()
    assert all_of(copy)[name] == b"frame"


# -- what is done again and again -------------------------------------------------------------------


def test_a_step_that_fails_is_told_and_done_again(clock: Clock) -> None:
    told: list[Exception] = []
    done = threading.Event()
    problems: list[Exception] = [ServiceError("down", retryable=True), ZeroDivisionError("a defect")]

    def step() -> None:
        clock.now += 1
        if problems:
            raise problems.pop(0)
        done.set()

    chore = Repeating("chore", step, 0.001, told.append, clock)
    chore.start()
    assert done.wait(120)
    chore.stop()
    assert [type(error) for error in told] == [ServiceError, ZeroDivisionError]


def test_what_may_be_waiting_is_as_old_as_the_last_step_that_was_done(clock: Clock) -> None:
    steps: queue.Queue[ServiceError | None] = queue.Queue()
    ran = threading.Semaphore(0)

    def step() -> None:
        problem = steps.get()
        clock.now += 10
        ran.release()
        if problem:
            raise problem

    chore = Repeating("chore", step, 0.0, lambda error: None, clock)
    chore.start()
    for problem in (None, ServiceError("down"), ServiceError("down")):
        steps.put(problem)
        assert ran.acquire(timeout=120)
    # The first step began at the start, and the others were not done.
    assert chore.age() == 30
    chore.end()
    steps.put(None)
    chore.stop()


def test_who_wakes_it_need_not_wait(clock: Clock) -> None:
    ran = threading.Semaphore(0)
    chore = Repeating("chore", ran.release, 1e6, lambda error: None, clock)
    chore.start()
    for _ in range(3):
        assert ran.acquire(timeout=120)
        chore.wake()
    chore.stop()


# -- metrics ---------------------------------------------------------------------------------------


def text(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}


def test_a_standby_has_nothing_to_lose() -> None:
    metrics = Metrics()
    metrics.rpo.set_function(lambda: 7.5)
    metrics.active.set(1)
    assert text(metrics)[f"{PREFIX}_rpo_seconds"] == 7.5
    metrics.standby()
    shown = text(metrics)
    assert (shown[f"{PREFIX}_rpo_seconds"], shown[f"{PREFIX}_active"]) == (0, 0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServiceError("x"), "store"),
        (AlreadyThere("x"), "store"),
        (LeaseLost("x"), "lease"),
        (Refused("x"), "refused"),
        (RoleMissing("x"), "refused"),
        (Unreachable("x"), "etcd"),
        (Compacted("x"), "gap"),
        (ChainError("x", gap=(1, 2)), "gap"),
        (ChainError("x"), "chain"),
        (KeyMissing("x"), "key"),
        (WrongCluster("x"), "cluster"),
        (SpoolError("x"), "spool"),
        (OSError("x"), "spool"),
        (ZeroDivisionError("x"), "other"),
    ],
)
def test_every_error_is_counted_by_its_kind(error: BaseException, kind: str) -> None:
    metrics = Metrics()
    zero = text(metrics)
    assert {name for name in zero if "_errors_total" in name} == {
        f'{PREFIX}_errors_total{{kind="{one}"}}' for one in KINDS
    }
    assert metrics.failed(error) == kind
    assert text(metrics)[f'{PREFIX}_errors_total{{kind="{kind}"}}'] == 1
