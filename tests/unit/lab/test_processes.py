# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Processes are found again for certain, and only ours."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from ironspan.lab import processes
from ironspan.lab.commands import attempt, run
from ironspan.lab.errors import LabError
from tests.support.waiting import until


def test_spawned_process_runs_is_marked_and_is_killed(tmp_path: Path) -> None:
    pid = processes.spawn(["sh", "-c", "echo hello; sleep 600 & wait"], tmp_path, "one")
    log = tmp_path / "log/one.log"
    until(log.read_text)
    assert processes.running(tmp_path, "one") == pid
    until(lambda: len(processes.marked(tmp_path)) == 2)
    assert pid in processes.marked(tmp_path)
    assert os.getsid(pid) == pid
    assert processes.end(tmp_path) == []
    assert processes.running(tmp_path, "one") is None
    assert processes.marked(tmp_path) == []
    assert log.read_text() == "hello\n"


def test_what_is_started_while_all_are_ended_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was looked for while it was about to start another one."""
    kill, first = processes.kill, iter([True])

    def killed(pids: Iterable[int]) -> list[int]:
        if next(first, False):
            processes.spawn(["sleep", "600"], tmp_path, "another")
        return kill(pids)

    processes.spawn(["sleep", "600"], tmp_path, "one")
    monkeypatch.setattr(processes, "kill", killed)
    assert processes.end(tmp_path) == []
    assert processes.marked(tmp_path) == []


def test_who_was_not_let_run_looks_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        times = iter([0.0, 3600.0])

        class Time:
            sleep = staticmethod(time.sleep)

            @staticmethod
            def monotonic() -> float:
                os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
                return next(times)

        monkeypatch.setattr(processes, "time", Time)
        assert processes.kill([child.pid]) == []


def test_mark_of_another_folder_is_not_ours(tmp_path: Path) -> None:
    pid = processes.spawn(["sleep", "600"], tmp_path / "lab1", "one")
    try:
        assert processes.marked(tmp_path / "lab") == []
        assert processes.marked(tmp_path) == []
    finally:
        processes.kill([pid])


def test_number_that_another_process_has_now_is_not_ours(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        processes.remember(tmp_path, "one", child.pid)
        assert processes.running(tmp_path, "one") == child.pid
        record = {"pid": child.pid, "start": (processes.start_time(child.pid) or 0) - 1}
        (tmp_path / "run/one.json").write_text(json.dumps(record))
        assert processes.running(tmp_path, "one") is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    "record", ["", "{", "[]", "{}", '{"pid": "x", "start": 1}', '{"pid": 1, "start": null}', "null"]
)
def test_damaged_record_is_no_process(tmp_path: Path, record: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/one.json").write_text(record)
    assert processes.running(tmp_path, "one") is None


def test_zombie_does_not_count_as_running() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_time(child.pid) is None
    child.wait()


def test_killing_what_is_gone_is_no_error() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert processes.kill([child.pid]) == []


def test_failed_command_is_told_with_its_words() -> None:
    with pytest.raises(LabError, match=r"exit code 3: broken") as caught:
        run(["sh", "-c", "echo broken >&2; exit 3"])
    assert caught.value.code == 1
    assert run(["cat"], stdin="in") == "in"
    assert attempt(["false"]).returncode == 1


def test_slow_and_missing_commands_are_errors() -> None:
    with pytest.raises(LabError, match="did not end within 0 s"):
        run(["sleep", "5"], timeout_s=0.05)
    with pytest.raises(LabError, match="'no-such-program' is not installed"):
        run(["no-such-program"])
