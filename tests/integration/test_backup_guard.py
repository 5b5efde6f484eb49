# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Former data are put back below real etcd: the agent has it closed. Members that lag are left alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import Gauge

from ironspan.backup.agent import guard
from ironspan.backup.agent.guard import Guard
from ironspan.backup.settings import Spool, load
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError
from tests.support.agent_process import AgentSite, site, wait
from tests.support.etcd_members import Members, find_etcd, running
from tests.support.hostile_writer import HUGE, HostileWriter

FAST = ("--heartbeat-interval=20", "--election-timeout=200")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_etcd(tmp_path_factory.mktemp("bin"), ["etcd"])["etcd"]


@pytest.fixture
def one(program: Path, tmp_path: Path) -> Iterator[tuple[Members, EtcdClient, AgentSite]]:
    """One member with an agent, a former copy of its data, and something more in its backup."""
    with (
        running(program, tmp_path / "etcd", flags=FAST) as members,
        EtcdClient(members.endpoints) as client,
        site(tmp_path / "site", members.endpoints) as agents,
    ):
        client.put(b"/registry/pods/a", b"1")
        members.stop("m1")
        shutil.copytree(members.folder / "m1", tmp_path / "copy")
        members.start("m1")
        members.wait("m1")
        agents.start("a")
        wait(lambda: agents.found().snapshots, "a snapshot")
        yield members, client, agents


def closed(agents: AgentSite) -> dict[str, object]:
    return guard.read(agents.folder / "closed.json")


def put_back(members: Members, copy: Path) -> None:
    """Let etcd serve a former copy of its data."""
    members.stop("m1")
    shutil.rmtree(members.folder / "m1")
    shutil.copytree(copy, members.folder / "m1")
    members.start("m1")
    members.wait("m1")


def test_former_data_that_are_put_back_are_closed_until_there_is_consent(
    one: tuple[Members, EtcdClient, AgentSite], tmp_path: Path
) -> None:
    members, client, agents = one
    for _ in range(5):
        last = client.put(b"/registry/pods/a", b"2").header.revision
    wait(lambda: agents.metric("a", "log_revision") >= last, "the log")
    put_back(members, tmp_path / "copy")
    wait(lambda: closed(agents), "the guard closes etcd")
    wait(lambda: agents.metric("a", "guard") == guard.CLOSED, "the metric says so")
    said = closed(agents)
    assert said["backup"] == {"epoch": 1, "cluster": said["cluster"], "revision": last}
    assert said["revision"] == client.header().revision < last
    done = agents.run("accept", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epoch"] == 2
    last = client.put(b"/registry/pods/a", b"3").header.revision
    wait(lambda: agents.metric("a", "epoch") == 2, "the backup goes on in another epoch")
    wait(lambda: agents.metric("a", "log_revision") >= last, "the log of it")
    assert json.loads(agents.run("accept", "--json").stdout)["accepted"] is False
    assert not closed(agents)
    somebody_writes(agents, client, str(said["cluster"]))


def somebody_writes(agents: AgentSite, client: EtcdClient, cluster: str) -> None:
    """Tell, with the agents' identity at the store and without a key, of revisions that never were."""
    attacker = HostileWriter(agents.store(), agents.names, cluster, random.Random(3), newest=2)
    attacker.extend()
    for _ in range(8):
        attacker.manifest(HUGE)
        attacker.segment()
        attacker.epoch()
        attacker.extend()
    assert len(attacker.made) > 8
    last = client.put(b"/registry/pods/a", b"4").header.revision
    wait(lambda: agents.metric("a", "log_revision") >= last, "the log goes on beside them")
    # An agent that starts looks at all of the backup before it compares.
    agents.stop("a")
    agents.start("a")
    last = client.put(b"/registry/pods/a", b"5").header.revision
    wait(partial(agents.beyond, "a", "log_revision", last - 1), "the log of the next run")
    wait(partial(agents.beyond, "a", "unproven_objects", 7), "the metric tells of them")
    assert agents.metric("a", "epoch") == 2
    assert agents.metric("a", "guard") == guard.RIGHT
    assert not closed(agents)
    (listed,) = json.loads(agents.run("list", "--json").stdout)["stores"]
    assert last <= listed["log"]["last_revision"] < HUGE
    assert {one["epoch"] for one in listed["snapshots"]} <= {1, 2}
    assert len(listed["damaged"]) > 7


class Shown(Gauge):
    """Keeps everything that it was set to."""

    def __init__(self) -> None:
        super().__init__("guard", "", registry=None)
        self.values: list[float] = []

    def set(self, value: float) -> None:
        self.values.append(value)


def test_a_member_that_lags_or_starts_is_left_alone(program: Path, tmp_path: Path) -> None:
    with (
        running(program, tmp_path / "etcd", 3, FAST) as members,
        EtcdClient(members.endpoints[:2], timeout=1) as client,
        EtcdClient(members.endpoints) as every,
        site(tmp_path / "site", [members.endpoint("m3"), *members.endpoints[:2]]) as agents,
    ):
        agents.start("a")
        wait(lambda: agents.found().snapshots, "a snapshot")
        agents.command("b")
        shown = Shown()
        own = dataclasses.replace(load(agents.folder / "b.json"), spool=Spool(tmp_path / "b" / "spool", 0))
        made = Guard(own, every, agents.store(), agents.names, shown, threading.Event())
        for asleep in (True, False):
            # The host's own member misses what the others are told, and comes back behind them.
            members.signal("m3", signal.SIGSTOP) if asleep else members.stop("m3", kill=True)
            last = written(client, 200)
            wait(partial(agents.beyond, "a", "log_revision", last - 1), "the log")
            members.signal("m3", signal.SIGCONT) if asleep else members.start("m3")
            with EtcdClient([members.endpoint("m3")], timeout=1) as third:
                wait(partial(looked, made, third), "the member answers")
            made.step()
        assert len(shown.values) >= 4
        assert set(shown.values) == {guard.RIGHT}
        assert not guard.closing_file(own).exists()


def written(client: EtcdClient, count: int) -> int:
    """Write so often, through an election if it comes to that, and return the last revision."""
    revisions: list[int] = []
    while len(revisions) < count:
        with contextlib.suppress(EtcdError):
            revisions.append(client.put(b"/registry/pods/a", b"2").header.revision)
    return revisions[-1]


def looked(made: Guard, client: EtcdClient) -> bool:
    """Let the guard compare, and tell whether the member answers."""
    made.step()
    try:
        return client.header().revision > 0
    except EtcdError:
        return False
