# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When which drill is due, and who does it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ironspan.backup.catalogue import Catalogue, Snapshot
from ironspan.backup.file_store import FileStore
from ironspan.backup.manifest import Epoch, Verdict
from ironspan.backup.names import Names, snapshot_id
from ironspan.backup.rebuild import drills, scratch
from ironspan.backup.rebuild.drills import (
    CHAIN_SECONDS,
    LEADER_WAITS_SECONDS,
    RETRY_SECONDS,
    Drills,
    Due,
    due,
)
from ironspan.backup.settings import Drill, parse
from ironspan.program.errors import ProgramError, Refused
from tests.support.backup_log import taken
from tests.support.clock import Clock
from tests.unit.backup.test_settings import UNSIGNING

HOUR = 3600
NOW = 1_000_000
RULES = Drill(after_snapshot=True, max_age_s=24 * HOUR, memory_max=0, cpu_quota_percent=0)


def snapshot(
    revision: int, age: float, verdict_age: float | None = None, to: int = 0, verified: bool = True
) -> Snapshot:
    """Return a snapshot made ``age`` seconds ago, and drilled ``verdict_age`` seconds ago to a revision."""
    created, verdict = int(NOW - age), None
    if verdict_age is not None:
        identifier = snapshot_id(revision, created)
        verdict = Verdict(1, identifier, verified, to or revision, int(NOW - verdict_age), 1.0, "h")
    return taken(revision, created, verdict=verdict)


def found(*snapshots: Snapshot) -> Catalogue:
    return Catalogue(Names("test"), (Epoch(1, "c", 0),), snapshots, ())


@pytest.mark.parametrize(
    ("snapshots", "rules", "expected"),
    [
        ([], RULES, None),
        ([snapshot(5, 60)], RULES, (5, "it is new")),
        ([snapshot(5, 60)], dataclasses.replace(RULES, after_snapshot=False), (5, "it is new")),
        (
            [snapshot(5, 7200, 7100, to=9), snapshot(9, 60)],
            dataclasses.replace(RULES, after_snapshot=False),
            None,
        ),
        ([snapshot(5, 60, 30)], RULES, None),
        ([snapshot(5, 60, 30, verified=False)], RULES, None),
        ([snapshot(5, 13 * HOUR, 12.5 * HOUR)], RULES, (5, "its proof gets old")),
        ([snapshot(5, 3700, 3600), snapshot(9, 60)], RULES, (9, "it is new")),
        ([snapshot(5, 3700, 3600), snapshot(9, 60, 30)], RULES, (5, "its log is complete")),
        ([snapshot(5, 3700, 20, to=9), snapshot(9, 60, 30)], RULES, None),
        ([snapshot(5, 3700, 20, to=7, verified=False), snapshot(9, 60, 30)], RULES, None),
        (
            [
                snapshot(1, CHAIN_SECONDS + 3700, CHAIN_SECONDS + 60, to=5),
                snapshot(5, 3700, 3600),
                snapshot(9, 60, 30),
            ],
            RULES,
            (5, "its log is complete"),
        ),
        ([snapshot(1, 7200, 3600, to=5), snapshot(5, 3700, 3600), snapshot(9, 60, 30)], RULES, None),
    ],
)
def test_what_is_due(snapshots: list[Snapshot], rules: Drill, expected: tuple[int, str] | None) -> None:
    one = due(found(*snapshots), rules, NOW)
    assert (one and (int(one.snapshot.split("-")[0]), one.why)) == expected


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(drills, "catalogue", lambda *_: None)
    # What the command leaves here stands for a verdict.
    ran, wanted = tmp_path / "ran", Due("s", NOW, "it is new")
    monkeypatch.setattr(drills, "due", lambda *_: None if ran.exists() else wanted)
    return Clock(NOW)


FAKE_SYSTEMD = """#!/bin/sh
echo "$@" >> $0.calls
[ -e $0.broken ] && { echo no bus >&2; exit 1; }
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.parametrize("broken", [False, True])
def test_limits_are_a_control_groups_where_systemd_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: bool
) -> None:
    program = tmp_path / "systemd-run"
    program.write_text(FAKE_SYSTEMD)
    program.chmod(0o755)
    if broken:
        (tmp_path / "systemd-run.broken").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    scratch._makes_scopes.cache_clear()
    try:
        command = scratch.in_scope(scratch.Limits(1 << 30, 50))
    finally:
        scratch._makes_scopes.cache_clear()
    if broken:
        assert command == []
        assert "without limits of its own: no bus" in caplog.text
    else:
        assert command[:2] == ["systemd-run", "--scope"]
        assert {"--property=MemoryMax=1073741824", "--property=CPUQuota=50%"} <= set(command)
        assert subprocess.run([*command, "echo", "done"], capture_output=True).stdout == b"done\n"


def drills_of(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, code: str, leads: bool = False
) -> Drills:
    """Return drills whose command is a line of Python."""
    settings = dataclasses.replace(parse(UNSIGNING), site="test", drill=RULES)
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    (tmp_path / "store").mkdir(exist_ok=True)
    return Drills(settings, Path("/settings"), FileStore(tmp_path / "store", ""), lambda: leads, clock)


def test_the_command_is_run_by_one_host_at_a_time(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "unpacked")
    one = drills_of(
        tmp_path, clock, monkeypatch, f'echo "$@" >> {tmp_path}/ran; echo $PYTHONPATH > {tmp_path}/path'
    )
    other = FileStore(tmp_path / "store", "").acquire("test/drill", 60, "other")
    one.step()
    assert not (tmp_path / "ran").exists()
    other.release()
    one.step()
    assert (tmp_path / "ran").read_text() == (
        "-m ironspan.backup.main drill s --store=1 --settings=/settings\n"
    )
    # The packed program's code is where only this process knows.
    assert str(tmp_path / "unpacked") in (tmp_path / "path").read_text().strip().split(":")
    FileStore(tmp_path / "store", "").acquire("test/drill", 60, "other").release()


def test_the_leader_waits_for_others(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    one = drills_of(tmp_path, clock, monkeypatch, f"touch {tmp_path}/ran", leads=True)
    one.step()
    assert not (tmp_path / "ran").exists()
    clock.now += LEADER_WAITS_SECONDS
    one.step()
    assert (tmp_path / "ran").exists()


def test_a_drill_that_could_not_be_done_is_tried_later(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drills, "due", lambda *_: Due("s", NOW, "it is new"))
    one = drills_of(tmp_path, clock, monkeypatch, f"echo >> {tmp_path}/ran; exit 1")
    with pytest.raises(ProgramError, match="drill of snapshot s ended with 1 and without a verdict"):
        one.step()
    one.step()
    assert (tmp_path / "ran").read_text() == "\n"
    clock.now += RETRY_SECONDS
    with pytest.raises(ProgramError, match="ended with 1"):
        one.step()


def test_a_drill_without_its_lease_is_ended(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drills, "RENEW_SECONDS", 0.05)
    one = drills_of(tmp_path, clock, monkeypatch, f"rm {tmp_path}/store/test/.drill.lease; exec sleep 60")
    with pytest.raises(ProgramError, match="lease"):
        one.step()


def test_a_store_that_refuses_at_the_start_is_opened_when_it_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [Refused("NAME resolves to a public address."), Refused("still")]
    stepped = threading.Event()

    def open_store(entry: object) -> FileStore:
        if refusals:
            raise refusals.pop()
        return FileStore(tmp_path / "store")

    monkeypatch.setattr("ironspan.backup.stores.open_store", open_store)
    monkeypatch.setattr(drills, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(Drills, "step", lambda self: stepped.set())
    with drills.drilling(parse(UNSIGNING), tmp_path / "settings.json"):
        assert stepped.wait(120)
    assert not refusals
