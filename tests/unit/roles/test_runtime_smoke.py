# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The programs that try and measure runtime classes on a host: what they ask of containerd and say."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "plugins/module_utils/_programs/runtime_bench.py"
Settings = dict[str, t.Any]


def _load() -> t.Any:
    specification = importlib.util.spec_from_file_location("ironspan_runtime_bench", PROGRAM)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


bench = _load()
smoke = bench.smoke
WORKS = "echo '[    0.000000] Starting gVisor...'"


def program(path: Path, text: str) -> str:
    """Write a shell script that notes its arguments, and return its path."""
    path.write_text(f'#!/bin/sh\necho "$@" >>{path}.calls\n{text}\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a host with one class, whose containerd does as wanted."""
    (tmp_path / "releases").mkdir()
    (tmp_path / "driver").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (a)\n"
    )
    one = {
        "name": "gvisor",
        "runtime": "io.containerd.runsc.v1",
        "config": "/etc/containerd/runsc.toml",
        "runsc": program(tmp_path / "runsc", "echo 570.1.02; echo 580.159.03"),
        "gpu": False,
        "declared_bytes": 64 << 20,
        "systemd_cgroup": False,
    }
    return {
        "address": "/run/containerd.sock",
        "ctr": program(tmp_path / "ctr", WORKS),
        "folder": str(tmp_path / "report"),
        "releases": str(tmp_path / "releases"),
        "current": "2",
        "driver_file": str(tmp_path / "driver"),
        "classes": [one],
    }


def run(settings: Settings, tmp_path: Path) -> tuple[int, Settings]:
    """Run the program as the unit does; return its exit status and its report."""
    config = tmp_path / "runtime.json"
    config.write_text(json.dumps(settings))
    status = smoke.main(str(config))
    return status, json.loads((tmp_path / "report/report.json").read_text())


def test_a_class_that_works(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(settings, tmp_path)
    assert (status, report["ok"], report["release"]) == (0, True, "2")
    asked = (tmp_path / "ctr.calls").read_text()
    assert "--namespace ironspan-smoke run --rm --read-only" in asked
    assert "--runtime io.containerd.runsc.v1 --runtime-config-path /etc/containerd/runsc.toml" in asked
    assert "--cgroup" not in asked
    assert "gvisor: works" in capsys.readouterr().out
    metrics = (tmp_path / "report/ironspan_runtime.prom").read_text()
    assert 'ironspan_runtime_class_ok{class="gvisor"} 1\n' in metrics
    assert f"ironspan_runtime_smoke_last_timestamp_seconds {report['time']:.0f}\n" in metrics


def test_the_cgroup_has_the_form_of_systemds_driver(settings: Settings, tmp_path: Path) -> None:
    settings["classes"][0]["systemd_cgroup"] = True
    run(settings, tmp_path)
    assert "--cgroup system.slice:ironspan:gvisor-" in (tmp_path / "ctr.calls").read_text()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'runsc: exec format error'; exit 1", "no sandbox starts: runsc: exec format error"),
        ("exit 3", "no sandbox starts: it said nothing"),
        ("echo 'Linux version 6.12'", "does not run on gVisor's kernel"),
    ],
)
def test_a_class_that_does_not(settings: Settings, tmp_path: Path, script: str, says: str) -> None:
    old = tmp_path / "releases/1"
    old.mkdir()
    os.utime(old, (0, 0))
    program(tmp_path / "ctr", script)
    status, report = run(settings, tmp_path)
    assert (status, report["ok"]) == (1, False)
    assert says in report["classes"][0]["message"]
    assert (
        'ironspan_runtime_class_ok{class="gvisor"} 0\n'
        in (tmp_path / "report/ironspan_runtime.prom").read_text()
    )
    assert old.is_dir(), "the release before may be needed again"


def test_one_class_that_fails_does_not_hide_the_others(settings: Settings, tmp_path: Path) -> None:
    bad = {**settings["classes"][0], "name": "bad", "config": "/bad"}
    settings["classes"].insert(0, bad)
    program(tmp_path / "ctr", f'case "$*" in */bad*) exit 1;; *) {WORKS};; esac')
    status, report = run(settings, tmp_path)
    assert status == 1
    assert [one["ok"] for one in report["classes"]] == [False, True]


@pytest.mark.parametrize(
    ("driver", "runsc", "says"),
    [
        ("NVRM version: NVIDIA 580.159.03 Release", "echo 580.159.03", ""),
        ("NVRM version: NVIDIA 580.178.04 Release", "echo 580.159.03", "does not know the driver 580.178.04"),
        ("NVRM version: NVIDIA 580.15 Release", "echo 580.159.03", "does not know the driver 580.15 "),
        ("no version", "echo 580.159.03", "names no version"),
        ("", "echo 580.159.03", "names no version"),
        ("NVRM version: NVIDIA 580.178.04 Release", "echo", "knows no driver at all"),
        (
            "NVRM version: NVIDIA 580.173.02 Release",
            "printf '%s\\n' 535.129.03 580.65.06 580.159.04 580.159.03 590.48.01",
            "the nearest one that it knows is 580.159.04",
        ),
        ("NVRM version: 580.159.03", "echo broken; exit 1", "which drivers it knows: broken"),
        (None, "echo 580.159.03", "there is no NVIDIA driver"),
    ],
)
def test_the_drivers_gate(
    settings: Settings, tmp_path: Path, driver: str | None, runsc: str, says: str
) -> None:
    settings["classes"][0]["gpu"] = True
    program(tmp_path / "runsc", runsc)
    file = tmp_path / "driver"
    file.unlink() if driver is None else file.write_text(driver)
    status, report = run(settings, tmp_path)
    assert status == int(bool(says))
    assert says in report["classes"][0]["message"]


def test_what_a_run_left_that_was_cut_off_is_taken_away(settings: Settings, tmp_path: Path) -> None:
    settings["ctr"] = program(
        tmp_path / "ctr",
        f"""case "$*" in *"container list"*)
  echo 'time="..." level=warning msg="something-7"'
  echo gvisor-2-4194305; echo gvisor-bench3-4194305; echo of-somebody-else; echo gvisor-$PPID;;
*) {WORKS};; esac""",
    )
    run(settings, tmp_path)
    deleted = [
        line.split()[-1]
        for line in (tmp_path / "ctr.calls").read_text().splitlines()
        if "container delete" in line
    ]
    assert deleted == ["gvisor-2-4194305", "gvisor-bench3-4194305", f"gvisor-{os.getpid()}"]


@pytest.mark.parametrize(("line", "runs"), [("ironspan-runtime-smoke", True), ("sleep", False)])
def test_another_run_is_let_alone(line: str, runs: bool) -> None:
    with subprocess.Popen([line, "600"], executable="/bin/sleep") as process:
        try:
            # The arguments of a program appear a moment after its start.
            end = time.monotonic() + 300
            while not Path(f"/proc/{process.pid}/cmdline").read_bytes() and time.monotonic() < end:
                time.sleep(0.01)
            assert smoke.is_running(str(process.pid)) is runs
        finally:
            process.kill()


def test_releases_go_when_nobody_runs_them(settings: Settings, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    for name in ("0", "1", "2", "young"):
        (releases / name).mkdir()
        (releases / name / "sleep").write_bytes(Path("/bin/sleep").read_bytes())
        (releases / name / "sleep").chmod(0o755)
        os.utime(releases / name, (0, 0))
    os.utime(releases / "young")
    with subprocess.Popen([releases / "1/sleep", "600"]) as process:
        try:
            _, report = run(settings, tmp_path)
        finally:
            process.kill()
    assert report["removed"] == ["0"]
    assert sorted(path.name for path in releases.iterdir()) == ["1", "2", "young"]
    _, report = run(settings, tmp_path)
    assert report["removed"] == ["1"], "its last process has ended"


@pytest.mark.parametrize(
    ("own", "remedy"),
    [(80, ""), (74, ""), (73, "write overhead_memory: 53Mi"), (99, ""), (101, "write overhead_memory: 81Mi")],
)
def test_what_is_measured_is_compared_with_what_is_declared(own: int, remedy: str) -> None:
    one = {"name": "gvisor", "declared_bytes": 64 << 20}
    figures = bench.compared(one, (0.9, own << 20), (0.6, 20 << 20))
    assert (figures["start_ratio"], figures["overhead_bytes"]) == (1.5, (own - 20) << 20)
    assert remedy in figures["remedy"]
    assert bool(figures["remedy"]) == bool(remedy)


def test_the_bench(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mounting takes root; that is tried with the real containerd.
    monkeypatch.setattr(bench, "bench", functools.partial(bench.measured, rounds=5))
    program(tmp_path / "ctr", "exit 0")
    settings["settle_seconds"] = 0
    config = tmp_path / "runtime.json"
    config.write_text(json.dumps(settings))
    assert bench.main(str(config)) == 0
    (one,) = json.loads((tmp_path / "report/bench.json").read_text())["classes"]
    assert one["name"] == "gvisor"
    calls = (tmp_path / "ctr.calls").read_text().splitlines()
    assert sum("run --detach" in call and "runsc" in call for call in calls) == 5
    assert sum("run --detach" in call and "runc.v2" in call for call in calls) == 5
    assert sum("container delete" in call for call in calls) == 10, "nothing is left"


def test_a_programs_memory_and_its_childrens_count(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run(['/bin/sleep', '600'])"
    with subprocess.Popen([sys.executable, "-c", child, "its-own-name"]) as process:
        try:
            end = time.monotonic() + 300
            while len(bench.processes_of("its-own-name")) < 2 and time.monotonic() < end:
                time.sleep(0.01)
            found = bench.processes_of("its-own-name")
            assert len(found) == 2 and str(process.pid) in found
            assert sum(map(bench.memory_of, found)) > 1 << 20
            assert bench.processes_of("its-own") == set()
        finally:
            for pid in bench.processes_of("its-own-name"):
                os.kill(int(pid), 9)
    assert bench.memory_of("1000000000") == 0


def test_a_program_that_takes_too_long_is_ended() -> None:
    began = time.monotonic()
    status, text = smoke.run(["/bin/sleep", "60"], 0.1)
    assert (status, "took more than" in text) == (124, True)
    assert time.monotonic() - began < 50
    assert smoke.run(["/no/such/program"])[0] == 127
