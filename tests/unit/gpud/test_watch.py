# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process that asks NVML: what it says, and what becomes of one that hangs."""

from __future__ import annotations

import os
import select
import signal
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ironspan.gpud import watch
from tests.support import nvml


def until(true: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never was"
        time.sleep(0.05)


class Heard:
    """What the watch told."""

    def __init__(self) -> None:
        self.lines: list[dict[str, t.Any]] = []
        self.hung: list[watch.Hung] = []

    def readings(self) -> list[dict[str, t.Any]]:
        return [line["reading"] for line in self.lines if "reading" in line]

    def watching(self, library: Path, **more: t.Any) -> watch.Watch:
        return watch.Watch(self.lines.append, self.hung.append, 1.0, library=str(library.parent), **more)


def test_one_reading_of_everything(gpus: nvml.State, library: Path) -> None:
    found = watch.read_once(library=str(library.parent))["reading"]
    assert [gpu["uuid"] for gpu in found["gpus"]] == [gpus.uuid(index) for index in range(8)]
    assert found["system"] == {"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": 13000}
    assert "host" in found


def test_what_is_left_out_is_not_asked(gpus: nvml.State, library: Path) -> None:
    gpus.set({"hang.nvmlDeviceGetGpuFabricInfo": 1})
    found = watch.read_once(60, ["fabric"], str(library.parent))["reading"]
    assert "fabric" not in found["gpus"][0]
    assert found["gpus"][0]["temperature"] == 33


def test_a_driver_that_is_not_there(gpus: nvml.State, library: Path) -> None:
    gpus.path.unlink()
    assert watch.read_once(library=str(library.parent))["failed"] == 9


def test_a_call_that_hangs_is_named_and_its_process_ended(gpus: nvml.State, library: Path) -> None:
    gpus.set({"5.hang.nvmlDeviceGetTemperature": 1})
    with pytest.raises(watch.Hung) as caught:
        watch.read_once(20, library=str(library.parent))
    assert (caught.value.call, caught.value.gpu) == ("temperature", 5)
    assert "from temperature of GPU 5" in str(caught.value)


def test_a_host_that_stood_still_is_no_driver_that_hangs(
    gpus: nvml.State, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped for minutes, as a machine that is moved is: its driver had no time to answer either."""
    now, looks = [0.0], iter([False, True])

    class Time:
        monotonic = staticmethod(lambda: now[0])

    class Select:
        @staticmethod
        def select(read: list[int], *others: t.Any) -> tuple[list[int], list[int], list[int]]:
            if next(looks):
                return select.select(read, *others[:2])
            now[0] += 300
            return [], [], []

    process = watch._Process(1.0, True, [], str(library.parent))
    try:
        monkeypatch.setattr(watch, "time", Time)
        monkeypatch.setattr(watch, "select", Select)
        assert "reading" in next(process.lines(45, lambda: False))
    finally:
        process.end()


def test_a_watch_goes_on_after_a_hang_and_passes_events_on(gpus: nvml.State, library: Path) -> None:
    heard = Heard()
    with heard.watching(library, deadline_s=20.0) as watching:
        until(heard.readings)
        first = watching.pid
        gpus.xid(3, 79)
        until(lambda: any(line.get("xid") == 79 for line in heard.lines))
        (told,) = [line for line in heard.lines if "xid" in line]
        assert told["gpu"] == gpus.uuid(3)
        gpus.set({"hang": 1})
        until(lambda: heard.hung)
        gpus.reset()
        before = len(heard.readings())
        until(lambda: len(heard.readings()) > before)
        assert watching.pid != first
        assert watching.age() < 60
        # Events that were raised before it began anew are not told again.
        assert len([line for line in heard.lines if "xid" in line]) == 1
    assert not Path(f"/proc/{watching.pid}").exists()


def test_a_process_that_is_killed_is_started_again(
    gpus: nvml.State, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_AGAIN_S", 0.1)
    heard = Heard()
    with heard.watching(library) as watching:
        until(heard.readings)
        first = watching.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: watching.pid != first)
        before = len(heard.readings())
        until(lambda: len(heard.readings()) > before)
    assert not heard.hung


def test_a_lost_gpu_is_looked_for_again(
    gpus: nvml.State, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    gpus.set({"2.fail": 15})
    with heard.watching(library):
        until(heard.readings)
        assert heard.readings()[-1]["gpus"][2]["lost"] == 15
        assert "lost" not in heard.readings()[-1]["gpus"][3]
        gpus.reset()
        # NVML is started again every ten seconds while a GPU is lost.
        until(lambda: not heard.readings()[-1]["gpus"][2].get("lost"))
