# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command line, its settings, and what Prometheus gets."""

from __future__ import annotations

import json
import re
import typing as t
import urllib.request
from pathlib import Path

import pytest

from ironspan.gpud import settings
from ironspan.gpud.main import main
from ironspan.gpud.metrics import COUNTERS, GAUGES
from ironspan.program.settings import SettingsError
from tests.support import nvml

from .test_agent import running
from .test_watch import until


@pytest.fixture
def file(tmp_path: Path, library: Path, gpus: nvml.State) -> Path:
    path = tmp_path / "gpud.json"
    content = {"state": str(tmp_path), "library": str(library.parent), "hang_seconds": 3}
    path.write_text(json.dumps(content))
    return path


def asked(file: Path, *arguments: str, capture: pytest.CaptureFixture[str]) -> tuple[int, t.Any]:
    code = main([*arguments, "--settings", str(file), "--json"])
    return code, json.loads(capture.readouterr().out)


def test_all_checks_once(file: Path, gpus: nvml.State, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(file, "check", capture=capsys)
    assert (code, found["healthy"], len(found["gpus"])) == (0, True, 8)
    assert {row["state"] for row in found["checks"]} == {"ok"}
    gpus.set({"2.remapped": "0 1 1 0", "2.persistence": 0})
    code, found = asked(file, "check", capture=capsys)
    told = [finding for row in found["checks"] for finding in row["findings"]]
    assert (code, found["healthy"]) == (1, False)
    assert [(each["class"], each["event"], each["gpu"]) for each in told] == [
        ("A2", "nvml remap_pending", gpus.uuid(2)),
        ("A5", "nvml persistence_off", gpus.uuid(2)),
    ]
    gpus.set({"hang.nvmlDeviceGetTemperature": 1})
    code, found = asked(file, "check", capture=capsys)
    assert code == 1
    assert {row["check"]: row["state"] for row in found["checks"]}["H02"] == "found"


def test_a_dump_has_no_names_of_cards(
    file: Path, gpus: nvml.State, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.set({"0.processes": "41:100"})
    code, found = asked(file, "dump", capture=capsys)
    assert code == 0
    text = json.dumps(found)
    assert gpus.uuid(0) not in text
    assert "16500000" not in text
    assert found["reading"]["gpus"][0]["processes"] == []
    assert found["reading"]["gpus"][0]["temperature"] == 33


def test_events_and_clearing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(file, "events", capture=capsys) == (
        0,
        {"boot": json.loads(json.dumps(_boot())), "events": []},
    )
    assert main(["clear", "--gpu", "GPU-1", "--settings", str(file)]) == 0
    assert json.loads((file.parent / "clear.json").read_text()) == {"gpu": "GPU-1"}


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_settings_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "gpud.json"
    content = {
        "node": "rack-1", "expected": {"count": 8, "model": "H100"},
        "checks": {"H08": {"rows": 100}, "H12": {"off": True}},
        "readings": {"fabric": False}, "overrides": {"xid 94": "A2 seen too often"},
    }  # fmt: skip
    path.write_text(json.dumps(content))
    found = settings.load(path)
    assert (found.node, found.expected.count, found.left_out) == ("rack-1", 8, ("fabric",))
    assert found.off == frozenset({"H12"})
    assert found.limits["H08"] == {"rows": 100}
    assert "H12" not in {check.name for check in found.checks}
    path.write_text(
        json.dumps(
            {"chekcs": {}, "checks": {"H99": {}, "H08": {"rows": "x"}}, "overrides": {"xid 0": "A2 why"}}
        )
    )
    with pytest.raises(SettingsError) as caught:
        settings.load(path)
    text = "\n".join(caught.value.problems)
    for part in ("chekcs is not known; write checks", "checks.H99", "checks.H08.rows", "overrides is wrong"):
        assert part in text


def test_prometheus_gets_the_gpus(tmp_path: Path, gpus: nvml.State, library: Path) -> None:
    kernel = tmp_path / "kmsg"
    kernel.write_text("")
    gpus.set({"2.clocks_reasons": 0x40, "2.utilization": "75 10"})
    port = 0
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def text() -> str:
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
            return str(answer.read().decode())

    with running(tmp_path, library):
        port = int((tmp_path / "port").read_text())
        until(lambda: (tmp_path / "events.json").exists())
        with kernel.open("a") as log:
            log.write("NVRM: Xid (PCI:0000:1f:00): 79, pid=1\n")
        until(lambda: 'event="xid 79"' in text())
        found = text()
    names = set(re.findall(r"^ironspan_gpud_(\w+?)(?:_total)?\{[^}]*uuid=", found, re.MULTILINE))
    assert {*GAUGES, *COUNTERS, "throttled", "lost", "events"} == names
    uuid = gpus.uuid(2)
    assert re.search(rf'ironspan_gpud_utilization_ratio{{[^}}]*uuid="{uuid}"}} 0.75', found)
    assert f'ironspan_gpud_throttled{{gpu="2",reason="hw_thermal",uuid="{uuid}"}} 1.0' in found
    assert "ironspan_gpud_healthy 0.0" in found
    assert f'ironspan_gpud_events_total{{class="A3",event="xid 79",uuid="{gpus.uuid(1)}"}} 1.0' in found
