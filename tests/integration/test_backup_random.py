# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Random workload, faults, backups and restores, judged by the history of what etcd did.

Every run is made from its seed. ``make random RUNS=1000`` does more of them, and a failure says how to do it
again.
"""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from pathlib import Path

import pytest

from ironspan.backup.agent.epoch import open_epoch
from ironspan.backup.agent.snapshotter import Snapshotter
from ironspan.backup.catalogue import catalogue
from ironspan.backup.chain import Point, choose
from ironspan.backup.rebuild.programs import Programs
from ironspan.etcd.client import EtcdClient
from tests.support.agent_process import wait
from tests.support.backup_agents import Clock, Host, Objects, Pace, quicken
from tests.support.backup_log import NAMES, PlainKeys
from tests.support.backup_run import Run
from tests.support.etcd_members import running
from tests.support.faulty_store import Fault

FIRST = int(os.environ.get("IRONSPAN_RANDOM_SEED", "0"))
RUNS = int(os.environ.get("IRONSPAN_RANDOM_RUNS", "20"))
MEMBERS = int(os.environ.get("IRONSPAN_RANDOM_MEMBERS", "1"))


def do(seed: int, programs: dict[str, Path], folder: Path, patch: pytest.MonkeyPatch, members: int) -> None:
    """Do one run; a failure says how to do it again."""
    print(f"again: make random RUNS=1 SEED={seed} MEMBERS={members}")
    run = Run(seed, Programs(programs["etcd"], programs["etcdutl"]), folder, patch, members)
    try:
        run.go()
    except BaseException as error:
        error.add_note(f"seed {seed}: {' '.join(run.steps)}")
        raise
    finally:
        run.close()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_no_acknowledged_write_is_lost_none_comes_back_and_the_order_is_kept(
    seed: int, etcd_programs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(seed, etcd_programs, tmp_path, monkeypatch, MEMBERS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10_000, 10_030))
def test_nor_with_three_members(
    seed: int, etcd_programs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(seed, etcd_programs, tmp_path, monkeypatch, 3)


def test_a_log_without_a_record_goes_on_behind_the_first_snapshot(
    etcd_programs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that end before their first append leave only snapshots; the next one logs what is between."""
    clock, objects, refusing = Clock(1_800_000_000.0), Objects(), threading.Event()
    quicken(monkeypatch, clock)

    def weather(host: Host, what: str, name: str) -> Fault | None:
        return "refused" if refusing.is_set() and what == "append" else None

    with (
        running(etcd_programs["etcd"], tmp_path / "etcd") as members,
        EtcdClient(members.endpoints) as client,
    ):
        epoch = open_epoch(objects, NAMES, client.header().cluster_id, clock())
        for number in range(6):
            client.put(b"/registry/pods/a", b"%d" % number)
            if number in (0, 3):
                Snapshotter(client, objects, PlainKeys(), NAMES, clock).take(epoch)
        last = client.header().revision
        clock.move(1000)
        refusing.set()
        host = Host("a", tmp_path, client, objects, clock, weather, Pace())
        host.start()
        wait(lambda: host.age() < math.inf, "the agent has looked at the store")
        # What came behind the snapshots would be lost now, however long ago it was.
        assert host.age() >= 1000
        refusing.clear()
        wait(lambda: (log := host.pipeline) and log.position.durable_revision >= last, "the log")
        wait(lambda: host.age() < 100, "nothing would be lost")
        host.end()
    found = catalogue(objects, NAMES)
    first = dataclasses.replace(found, snapshots=found.snapshots[:1])
    assert choose(objects, first, Point(), PlainKeys()).revision == last
