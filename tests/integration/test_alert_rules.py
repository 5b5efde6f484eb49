# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The alerts of monitoring/ as Prometheus' own promtool judges them, compiled once into the cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ironspan.artifacts import cache, gobuild, lock, lock_file, toolchain
from tests.support.playbooks import ROOT

MONITORING = ROOT / "monitoring"
PARTS = sorted(path.name.removesuffix("-alerts.yml") for path in MONITORING.glob("*-alerts.yml"))


@pytest.fixture(scope="module")
def promtool() -> Path:
    locked = lock_file.load()
    if missing := toolchain.missing([locked.components["prometheus"]], debian_bases=False):
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
            pytest.fail("; ".join(missing))
        pytest.skip("; ".join(missing))
    return gobuild.Builder(locked, cache.Cache(), lock.native_arch()).program("prometheus/promtool", print)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("action", "ending"), [("check", "yml"), ("test", "test.yml")])
def test_the_alerts_fire_when_they_should(promtool: Path, part: str, action: str, ending: str) -> None:
    done = subprocess.run(
        [promtool, action, "rules", f"{part}-alerts.{ending}"],
        cwd=MONITORING,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr
