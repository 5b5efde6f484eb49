# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves beside its log, while it lasts and when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.processes import started

from ironspan.cli import playbook, run_record
from ironspan.cli.outcome import Exit
from ironspan.cli.report import Run
from ironspan.cli.run_record import DATA, LIVE, PAGE, Recorder
from ironspan.pages import run_page
from tests.support import runs


def test_a_run_leaves_data_and_a_page_and_nothing_of_its_progress(tmp_path: Path) -> None:
    recorder = runs.recorded(tmp_path, 3)
    recorder.tell()
    (going,) = run_record.running(tmp_path)
    assert (going["state"], going["site"], going["phases"][1]["hosts"]) == ("running", "north", 6)
    page = Path(recorder.finish(Exit.FAILED))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [PAGE, DATA]
    (data,) = run_record.records(tmp_path)
    found = run_record.read(data)
    assert found and run_page.page(found) == page.read_text()
    assert (found["state"], found["code"], found["site"]) == ("failed", 1, "north")
    assert run_record.running(tmp_path) == []


def test_a_run_whose_process_is_gone_was_cut_off(tmp_path: Path) -> None:
    recorder = runs.recorded(tmp_path, 1)
    gone = {**recorder.live(), "pid": os.getpid(), "born": "1"}  # the number is another process's now
    recorder.log.with_suffix(LIVE).write_text(json.dumps(gone))
    assert [each["state"] for each in run_record.running(tmp_path)] == ["unfinished"]


def test_a_run_whose_process_is_a_zombie_was_cut_off(tmp_path: Path) -> None:
    """Nobody asked for its exit status yet; it has ended all the same."""
    recorder = runs.recorded(tmp_path, 1)
    child = subprocess.Popen(["sleep", "600"])
    try:
        left = {**recorder.live(), "pid": child.pid, "born": started(child.pid)}
        recorder.log.with_suffix(LIVE).write_text(json.dumps(left))
        assert [each["state"] for each in run_record.running(tmp_path)] == ["running"]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert [each["state"] for each in run_record.running(tmp_path)] == ["unfinished"]
    finally:
        child.kill()
        child.wait()
    assert started(child.pid) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "run", "schema": 99}', "\xff"])
def test_what_is_no_record_is_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / f"x-1{DATA}").write_text(text, encoding="latin-1")
    assert run_record.read(tmp_path / f"x-1{DATA}") is None


def test_a_page_that_cannot_be_written_is_no_end_of_a_run(tmp_path: Path) -> None:
    said = runs.recorded(tmp_path / "gone", 1).finish(Exit.OK)
    assert said.startswith("not written: FileNotFoundError")


def test_progress_is_written_once_a_second(tmp_path: Path) -> None:
    clock = runs.Clock(100.0)
    run = Run(clock=clock)
    recorder = Recorder(run, "site", [], tmp_path / "apply-1.log", clock=clock)
    live = tmp_path / f"apply-1{LIVE}"
    recorder.tell()
    first = live.stat().st_ino
    clock.now += 0.5
    recorder.tell()
    assert live.stat().st_ino == first
    recorder.tell(force=True)
    assert live.stat().st_ino != first


def test_values_of_variables_stay_out_of_files() -> None:
    given = [
        "apply",
        "-e",
        "token=hunter2",
        "-e",
        "@f.yml",
        "-e",
        '{"a": "b=c"}',
        "--extra-vars=x=y",
        "--limit",
        "a",
    ]
    shown = run_record.without_values(given)
    assert shown == ["apply", "-e", "token=…", "-e", "…", "-e", "…", "--extra-vars=…", "--limit", "a"]


def test_private_keys_stay_out_of_differences(tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIhunter2\n-----END PRIVATE KEY-----\n"
    answer = runs.applied()
    answer["diff"][0]["before"] = key
    run = Run(clock=runs.Clock())
    recorder = Recorder(run, "site", [], tmp_path / "apply-1.log")
    for event in (runs.play("Prepare"), runs.said("ok", "a", answer)):
        run.take(event)
        recorder.take(event)
    whole = json.dumps(recorder.record(Exit.OK))
    assert "hunter2" not in whole and "a private key, not shown" in whole


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (
            {"stores": [{"store": "a", "snapshots": [{"created": 5}, {"created": 9}]}]},
            [{"store": "a", "newest": 9.0}],
        ),
        ({"stores": [{"store": "a", "snapshots": []}]}, [{"store": "a", "newest": None}]),
        ({"stores": 7}, []),
        ({"stores": [{"store": "a", "snapshots": [{"created": "soon"}]}]}, []),
        ("nonsense", []),
    ],
)
def test_the_age_of_backups_is_kept(answer: t.Any, found: list[t.Any], tmp_path: Path) -> None:
    run = Run(clock=runs.Clock())
    recorder = Recorder(run, "backup_list", [], tmp_path / "backup-1.log")
    for event in (runs.play("Backups"), runs.said("ok", "etcd-1", {"answer": answer}, "x")):
        run.take(event)
        recorder.take(event)
    assert recorder.record(Exit.OK)["backups"] == found


def test_the_oldest_logs_go_with_their_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "ironspan" / "log"
    folder.mkdir(parents=True)
    for number in range(25):
        for suffix in (".log", DATA, PAGE):
            (folder / f"apply-20260101T0000{number:02}.000000Z{suffix}").touch()
    other = folder / "apply-other-20250101T000000.000000Z.log"
    other.touch()
    playbook.log_file("apply")
    assert len(list(folder.glob(f"*{PAGE}"))) == len(list(folder.glob(f"*{DATA}"))) == playbook.LOGS_KEPT - 1
    assert other.exists()
