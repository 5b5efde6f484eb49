# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When the agent takes a snapshot, and what the program does with the end of a command."""

from __future__ import annotations

import argparse
import json
import typing as t
from pathlib import Path

import pytest

from ironspan.backup import main as program
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.snapshots import Snapshots
from ironspan.backup.agent.snapshotter import Snapshotter
from ironspan.backup.errors import WrongCluster
from ironspan.backup.manifest import Epoch, Manifest
from ironspan.backup.settings import Settings
from ironspan.etcd.errors import Unreachable
from ironspan.program import command
from ironspan.program.errors import ProgramError, ServiceError
from ironspan.program.listen import Listen
from tests.support.backup_log import (
    CLUSTER,
    NAMES,
    START_MS,
    PlainKeys,
    add_epoch,
    add_log,
    add_snapshot,
    manifest,
    revision,
)
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.unit.backup.test_settings import GOOD

START = START_MS // 1000


class Taker:
    """Counts instead of taking snapshots."""

    def __init__(self) -> None:
        self.least: list[int] = []
        self.error: ProgramError | None = None

    def take(self, epoch: Epoch, least: int) -> tuple[str, Manifest]:
        self.least.append(least)
        if self.error:
            raise self.error
        return "id", manifest(9, START)


@pytest.fixture
def store() -> FaultyStore:
    made = FaultyStore(MemoryStore())
    add_epoch(made)
    return made


@pytest.fixture
def taker() -> Taker:
    return Taker()


def snapshots(store: FaultyStore, taker: Taker, age: float) -> Snapshots:
    """Return those of an epoch at some seconds after a snapshot of revision 5."""
    epoch = Epoch(1, CLUSTER, START)
    source = t.cast("Snapshotter", taker)
    return Snapshots(source, store, NAMES, epoch, 3600, Metrics(), wall=lambda: START + 5 + age)


def test_an_empty_store_gets_one_and_then_none_for_an_hour(store: FaultyStore, taker: Taker) -> None:
    keeper = snapshots(store, taker, 0)
    keeper.step()
    keeper.step()
    assert taker.least == [0]


@pytest.mark.parametrize(("age", "taken"), [(100, 0), (3700, 1)])
def test_a_whole_chain_is_left_until_the_hour_is_over(
    store: FaultyStore, taker: Taker, age: float, taken: int
) -> None:
    add_snapshot(store, PlainKeys(), 5)
    add_log(store, PlainKeys(), [[revision(6)], [revision(7)]], after=5)
    keeper = snapshots(store, taker, age)
    keeper.step()
    assert len(taker.least) == taken


def test_a_chain_with_a_gap_needs_one_at_once(store: FaultyStore, taker: Taker) -> None:
    add_snapshot(store, PlainKeys(), 5)
    add_log(store, PlainKeys(), [[revision(6)]], after=5)
    add_log(store, PlainKeys(), [[revision(9)]], after=8)
    snapshots(store, taker, 100).step()
    assert len(taker.least) == 1


def test_a_log_that_begins_anew_asks_for_one_that_leads_into_it(store: FaultyStore, taker: Taker) -> None:
    add_snapshot(store, PlainKeys(), 5)
    keeper = snapshots(store, taker, 100)
    keeper.step()
    assert taker.least == []
    keeper.need(77)
    keeper.step()
    keeper.step()
    assert taker.least == [77]


@pytest.mark.parametrize(("age", "least"), [(95, 100), (-3600, 0)])
def test_without_a_snapshot_all_since_the_epoch_began_counts_as_lost(
    store: FaultyStore, taker: Taker, age: float, least: float
) -> None:
    """An agent was killed before its first snapshot; the next one finds its log. Its clock may be behind."""
    add_log(store, PlainKeys(), [[revision(6)]], after=5)
    taker.error = ProgramError("etcd does not answer.")
    keeper = snapshots(store, taker, age)
    with pytest.raises(ProgramError):
        keeper.step()
    assert least <= keeper.missing() < least + 60
    taker.error = None
    keeper._schedule = None
    keeper.step()
    assert keeper.missing() == 0


def test_what_no_snapshot_leads_to_counts_as_lost_until_one_is_taken(
    store: FaultyStore, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("ironspan.backup.agent.snapshots.time.monotonic", lambda: now)
    keeper = snapshots(store, taker, 0)
    now += 7
    assert keeper.missing() == 7
    keeper.step()
    assert keeper.missing() == 0
    # The one that is taken is of revision 9, which leads into no log that begins behind 10.
    for least, left in ((10, 33), (9, 0)):
        keeper.need(least, age=30)
        now += 3
        keeper.step()
        assert keeper.missing() == left


def test_a_chain_that_is_whole_leaves_nothing_missing_and_a_gap_does(
    store: FaultyStore, taker: Taker
) -> None:
    add_snapshot(store, PlainKeys(), 5)
    add_log(store, PlainKeys(), [[revision(6)]], after=5)
    keeper = snapshots(store, taker, 100)
    keeper.step()
    assert keeper.missing() == 0
    add_log(store, PlainKeys(), [[revision(9)]], after=8)
    taker.error = ServiceError("down", retryable=True)
    keeper = snapshots(store, taker, 100)
    with pytest.raises(ServiceError):
        keeper.step()
    assert 100 <= keeper.missing() < 200


def test_a_failure_is_not_tried_again_at_once(store: FaultyStore, taker: Taker) -> None:
    taker.error = ServiceError("down", retryable=True)
    keeper = snapshots(store, taker, 0)
    with pytest.raises(ServiceError):
        keeper.step()
    keeper.step()
    assert len(taker.least) == 1


def test_a_store_that_cannot_be_read_is_asked_again(store: FaultyStore, taker: Taker) -> None:
    add_snapshot(store, PlainKeys(), 5)
    keeper = snapshots(store, taker, 100)
    store.down.set()
    with pytest.raises(ServiceError):
        keeper.step()
    store.down.clear()
    keeper.step()
    assert taker.least == []


# -- the program -----------------------------------------------------------------------------------


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(GOOD))
    return path


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (ServiceError("x", "y"), 1),
        (Unreachable("x", "y"), 1),
        (WrongCluster("x", "y"), 2),
        (ProgramError("x", "y"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_end_of_a_command_is_its_code(
    settings_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    code: int,
) -> None:
    def act(settings: Settings, arguments: argparse.Namespace) -> None:
        if error:
            raise error
        command.answer(arguments, {"done": True}, "done")

    monkeypatch.setattr("ironspan.backup.agent.commands._list", act)
    assert program.main(["list", "--json", "--settings", str(settings_file)]) == code
    said = capsys.readouterr()
    if isinstance(error, ProgramError):
        shown = {"kind": type(error).__name__, "message": "x", "remedy": "y"}
        assert json.loads(said.out) == {"error": shown}
        assert "x\n  y" in said.err
    elif error is None:
        assert json.loads(said.out) == {"done": True}


def test_wrong_settings_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(GOOD | {"flush_ms": 1}))
    assert program.main(["list", "--settings", str(path)]) == command.REFUSED
    assert "flush_ms is 1; write a whole number" in capsys.readouterr().err


def test_every_command_takes_the_settings() -> None:
    parser = program.build_parser()
    assert parser.parse_args(["run", "--settings", "/x"]).settings == Path("/x")
    assert not parser.parse_args(["snapshot"]).json


def test_a_port_that_is_taken_is_refused(settings_file: Path) -> None:
    with (
        Metrics().serving(Listen("127.0.0.1", 0)) as port,
        pytest.raises(ProgramError, match="Metrics cannot be served"),
        Metrics().serving(Listen("127.0.0.1", port)),
    ):
        pass
