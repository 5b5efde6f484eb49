# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The backup's log: how far it is behind etcd, and what it costs the host.

A store in a folder, so that what is measured is the agent. `make bench` measures a minute of each and
asserts the times, which mean something on a machine that does nothing else; without it the runs are fewer
and short, and CPU and memory alone are asserted.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.etcd.client import EtcdClient
from tests.bench.table import Table
from tests.support.etcd_members import Members, find_etcd, running
from tests.support.log_agent import LogAgent, log_agent

SECTION = "Backup log"
RECORDED = "IRONSPAN_BENCH_RECORD" in os.environ
SECONDS = 60 if RECORDED else 10
OUTAGE_S = 60 if RECORDED else 6
WRITTEN_S = 25 if RECORDED else 8
"""For how long writes go on after the outage, while the store is caught up with."""
RPO_S, RPO_BUSY_S, RECOVERY_S = 1, 2, 10
SLOWER = 1.05
TURNS, TURN_S = int(os.environ.get("IRONSPAN_BENCH_TURNS", "40")), 4.0
"""The agent is on and off by turns so short that what else the machine does meets both alike. How long a disk
takes to sync differs so much that some hundred turns are needed to tell a twentieth."""
WINDOW_S = 0.5
"""Of a turn count the parts in which the hypervisor took nothing: a hundredth of a processor, the least that
the kernel counts in such a time, makes their p99 half as long again."""
SETTLE_S = 2.0
"""Before each turn. An agent that has just begun reads what was written while it was off, for a second at
most; in a site it does so once in months, here it would in every other turn."""
RESAMPLED = 400
CORES = 0.25
MEMORY_MB = 200
recorded = pytest.mark.skipif(not RECORDED, reason="`make bench` measures it: minutes")
ROOT = Path(__file__).resolve().parent.parent.parent


@contextlib.contextmanager
def cluster(count: int) -> Iterator[Members]:
    with tempfile.TemporaryDirectory(prefix="isb-", dir="/tmp") as name:
        folder = Path(name)
        program = find_etcd(folder / "bin", ["etcd"])["etcd"]
        # Its writes are synced, as those of a real one: that is most of what they take.
        flags = ["--unsafe-no-fsync=false", "--quota-backend-bytes=8589934592"]
        with running(program, folder / "members", count, flags) as started:
            yield started


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    with cluster(1) as started:
        yield started


@pytest.fixture
def agent(members: Members, tmp_path: Path) -> Iterator[LogAgent]:
    with EtcdClient(members.endpoints) as client:
        start = client.header().revision
    with log_agent(tmp_path, members.endpoints, start) as started:
        yield started


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="isb-", dir="/dev/shm") as name:
        yield Path(name)


class Writer:
    """Writes in another process; with ``at_once`` it has a processor whenever it wants one."""

    def __init__(
        self,
        folder: Path,
        members: Members,
        rate: int,
        each: int,
        seconds: float,
        *,
        at_once: bool = False,
    ) -> None:
        self._result = folder / "acknowledged.json"
        self._seconds = seconds
        endpoints = ",".join(members.endpoints).replace("http://", "")
        arguments = [endpoints, rate, each, seconds, 1024, self._result]
        scheduling = ["chrt", "--fifo", "1"] if at_once else []
        self._process = subprocess.Popen(
            [*scheduling, sys.executable, "-m", "tests.bench.etcd_writer", *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def acknowledged(self) -> list[tuple[int, float]]:
        """Wait for its end and return revision and time of every acknowledgement."""
        return [(revision, at) for revision, at, _ in self._read()]

    def latencies_between(self, spans: list[tuple[float, float]]) -> list[list[float]]:
        """End it, and return for every span of time how long each write took that was sent in it, seconds."""
        self._process.terminate()
        written = sorted((at - took, took) for _, at, took in self._read())
        sent = [at for at, _ in written]
        places = [[bisect.bisect_left(sent, at) for at in span] for span in spans]
        return [[took for _, took in written[first:last]] for first, last in places]

    def _read(self) -> list[tuple[int, float, float]]:
        assert self._process.wait(self._seconds * 3 + 60) == 0
        return [(revision, at, took) for revision, at, took in json.loads(self._result.read_text())]


def lags(acknowledged: list[tuple[int, float]], stored: list[tuple[int, float]]) -> list[float]:
    """Return for every acknowledged write the seconds until it was durable, sorted."""
    revisions = [revision for revision, _ in stored]
    found = []
    for revision, at in acknowledged:
        place = bisect.bisect_left(revisions, revision)
        assert place < len(stored), f"revision {revision} was acknowledged and never stored"
        found.append(max(0.0, stored[place][1] - at))
    return sorted(found)


def p99(values: list[float]) -> float:
    return values[int(len(values) * 0.99)]


def finish(agent: LogAgent, acknowledged: list[tuple[int, float]]) -> list[float]:
    """Wait until all is durable, end the agent and return the writes' lags."""
    last = acknowledged[-1][0]
    agent.wait(lambda state: state["durable"] >= last, 120)
    agent.end()
    return lags(acknowledged, agent.stored())


def test_a_thousand_writes_a_second(agent: LogAgent, members: Members, tmp_path: Path, table: Table) -> None:
    before = agent.state()
    writer = Writer(tmp_path, members, 1000, 1, SECONDS)
    acknowledged = writer.acknowledged()
    after = agent.state()
    found = finish(agent, acknowledged)
    cores = (after["cpu"] - before["cpu"]) / (after["time"] - before["time"])
    rate = len(acknowledged) / (acknowledged[-1][1] - acknowledged[0][1])
    what = "1,000 writes of 1 KiB a second"
    note = f"{rate:.0f} a second were taken; median {found[len(found) // 2]:.2f} s"
    time_budget(table, f"{what}: acknowledged to durable, p99", p99(found), RPO_S, note)
    table.add(SECTION, f"{what}: agent's CPU", cores, CORES, "cores")
    table.add(SECTION, f"{what}: agent's memory at most", after["peak_bytes"] / 1e6, MEMORY_MB, "MB")
    table.check()


@recorded
def test_five_thousand_writes_a_second(
    agent: LogAgent, members: Members, tmp_path: Path, table: Table
) -> None:
    acknowledged = Writer(tmp_path, members, 1000, 5, SECONDS).acknowledged()
    found = finish(agent, acknowledged)
    state = agent.state()
    rate = 5 * len(acknowledged) / (acknowledged[-1][1] - acknowledged[0][1])
    what = "5,000 writes of 1 KiB a second, 5 a transaction"
    note = f"{rate:.0f} a second were taken"
    table.add(SECTION, f"{what}: acknowledged to durable, p99", p99(found), RPO_BUSY_S, "s", note)
    table.add(SECTION, f"{what}: agent's memory at most", state["peak_bytes"] / 1e6, MEMORY_MB, "MB")
    table.check()


def test_a_burst_stays_in_bounded_memory(
    agent: LogAgent, members: Members, tmp_path: Path, table: Table
) -> None:
    acknowledged = Writer(tmp_path, members, 1000, 20, 5).acknowledged()
    found = finish(agent, acknowledged)
    rate = 20 * len(acknowledged) / (acknowledged[-1][1] - acknowledged[0][1])
    what = "burst of 20,000 writes a second, 20 a transaction, 5 s"
    note = f"{rate:.0f} a second were taken; the last one was durable {found[-1]:.1f} s later"
    peak = agent.state()["peak_bytes"] / 1e6
    table.add(SECTION, f"{what}: agent's memory at most", peak, MEMORY_MB, "MB", note)
    table.check()


def test_an_outage_of_the_store_is_caught_up(
    agent: LogAgent, members: Members, tmp_path: Path, table: Table
) -> None:
    writer = Writer(tmp_path, members, 1000, 1, OUTAGE_S + WRITTEN_S)
    agent.wait(lambda state: state["durable"] > agent.after)
    agent.set_down(True)
    time.sleep(OUTAGE_S)
    spooled = agent.state()["spooled_bytes"]
    agent.set_down(False)
    back = time.monotonic()
    state = agent.wait(lambda state: state["rpo"] < RPO_S, 120)
    acknowledged = writer.acknowledged()
    finish(agent, acknowledged)
    assert spooled > 0
    what = f"{OUTAGE_S} s outage of the store at 1,000 writes a second"
    note = f"{spooled / 1e6:.0f} MB were on disk"
    seconds = state["time"] - back
    time_budget(table, f"{what}: until less than {RPO_S} s would be lost again", seconds, RECOVERY_S, note)
    peak = agent.state()["peak_bytes"] / 1e6
    table.add(SECTION, f"{what}: agent's memory at most", peak, MEMORY_MB, "MB")
    table.check()


@recorded
@pytest.mark.parametrize(("count", "budget"), [(3, SLOWER), (1, None)])
def test_writes_to_etcd_take_no_longer_with_it(
    tmp_path: Path, in_memory: Path, table: Table, count: int, budget: float | None
) -> None:
    """One writer throughout, so that nothing but the agent differs; its store is not on etcd's disk.

    Of three members, as a site has, the agent reads from one that does not lead, for which most writes do not
    wait. A member alone has to serve the agent beside the writer: there is no budget for that.

    In a site the store and the writer are on other machines. In a folder on the same disk each write of the
    store, which is synced too, would be waited for by one of etcd's; and the writer has what it needs of the
    processors, so that what is measured is how long etcd takes.

    The order is with, without, without, with: a machine that gets slower or faster favours none. Half seconds
    in which the hypervisor gave a processor to others do not count; whether it did has nothing to do with the
    agent. How certain the ratio is comes from the turns themselves: it is computed again for turns drawn from
    those there are.
    """
    with cluster(count) as members:
        turns = by_turns(members, tmp_path, in_memory)
    backed, alone = ([turn.took for turn in turns if turn.backed == on and turn.took] for on in (True, False))
    assert backed and alone, "the hypervisor had a processor all the time"
    low, high = between(backed, alone)
    with_it, without = p99_of(backed), p99_of(alone)
    to = "one member" if count == 1 else f"{count} members"
    what = f"300 writes of 1 KiB a second to {to}: p99 of their time with the agent and without"
    counted = sum(len(turn.windows) for turn in turns) * WINDOW_S / (TURN_S * len(turns))
    note = (
        f"{with_it * 1e3:.2f} ms and {without * 1e3:.2f} ms; {len(turns)} turns of {TURN_S:.0f} s, "
        f"{counted:.0%} of their time counts; nine of ten times between {low:.2f} and {high:.2f}"
    )
    told = f"{with_it / without:.3g}"
    if budget:
        verdict = "" if high <= budget or low > budget else ", too uncertain to tell"
        told += f" (budget {budget}{verdict})"
    table.note(SECTION, what, told, note)
    assert budget is None or low <= budget, note


@dataclasses.dataclass
class Turn:
    """A time with the agent or without.

    Attributes:
        backed: whether the agent was on.
        windows: the parts of it in which the hypervisor took nothing, on the machine's monotonic clock.
        took: seconds of every write that was sent in one of them.
    """

    backed: bool
    windows: list[tuple[float, float]]
    took: list[float] = dataclasses.field(default_factory=list)


def by_turns(members: Members, folder: Path, in_memory: Path) -> list[Turn]:
    """Write all the time, and let the agent run in every other turn."""
    with EtcdClient(members.endpoints) as client:
        start = client.header().revision
    agent = LogAgent(in_memory, members.endpoints, start, idle=True)
    writer = Writer(folder, members, 300, 1, 7200, at_once=True)
    turns: list[Turn] = []
    try:
        for number in range(TURNS):
            backed = number % 4 in (0, 3)
            if backed and not agent.running:
                agent.start()
            elif not backed:
                agent.end()
            time.sleep(SETTLE_S)
            turns.append(Turn(backed, quiet_windows()))
            assert not backed or agent.state()["rpo"] < RPO_S
    finally:
        agent.end()
    taken = iter(writer.latencies_between([window for turn in turns for window in turn.windows]))
    for turn in turns:
        turn.took = [took for _ in turn.windows for took in next(taken)]
    return turns


def quiet_windows() -> list[tuple[float, float]]:
    """Wait for a turn, and return the parts of it in which the hypervisor took nothing."""
    found = []
    stolen = stolen_ticks()
    for _ in range(int(TURN_S / WINDOW_S)):
        began = time.monotonic()
        time.sleep(WINDOW_S)
        before, stolen = stolen, stolen_ticks()
        if stolen == before:
            found.append((began, time.monotonic()))
    return found


def stolen_ticks() -> int:
    """Return for how long the hypervisor had processors of this machine, in 1/100 s (proc_stat(5), steal)."""
    return int(Path("/proc/stat").read_text().split()[8])


def p99_of(turns: list[list[float]]) -> float:
    """Return the p99 of all turns' writes together."""
    return p99(sorted(took for turn in turns for took in turn))


def between(ones: list[list[float]], others: list[list[float]]) -> tuple[float, float]:
    """Return between which values nine of ten ratios of the p99 lie, of turns drawn again (bootstrap)."""
    chance = random.Random(1)

    def drawn(turns: list[list[float]]) -> float:
        return p99_of(chance.choices(turns, k=len(turns)))

    ratios = sorted(drawn(ones) / drawn(others) for _ in range(RESAMPLED))
    return ratios[RESAMPLED // 20], ratios[-RESAMPLED // 20]


def time_budget(table: Table, what: str, seconds: float, budget: float, note: str) -> None:
    """Note a time, with its budget where the machine is there for the bench alone."""
    if RECORDED:
        table.add(SECTION, what, seconds, budget, "s", note)
    else:
        table.note(SECTION, what, f"{seconds:.3g} s", note)
