# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``disk_latency``: measured once, before there are data, and refused above the limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import disk_latency
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.disk_latency import (
    KIND,
    measure,
    percentile,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

from tests.support.faults import insist

from .fake_host import FakeHost, converge, filled

SPEC = filled(
    KIND,
    id="etcd_disk/latency",
    requires=["etcd_disk/file-system"],
    folder="/var/lib/etcd",
    limit_ms=10,
    unless="/var/lib/etcd/0a1b/member",
    variable="etcd_disk_fdatasync_ms",
)
FAST, SLOW = [1.0] * 98 + [9.0] * 2, [1.0] * 98 + [44.4, 51.5]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path)
    monkeypatch.setattr(host, "write", lambda *_, **__: None)
    return host


def taken(monkeypatch: pytest.MonkeyPatch, samples: list[float]) -> list[str]:
    """Have a measurement take these times; returns the folders that are measured."""
    where: list[str] = []

    def measured(folder: str) -> list[float]:
        where.append(folder)
        return samples

    monkeypatch.setattr(disk_latency, "measure", measured)
    return where


def test_a_fast_disk_is_measured_once(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    where = taken(monkeypatch, FAST)
    change = converge(KIND, SPEC, host)
    assert change is not None and change.action == "run" and change.after["p99_ms"] == "<= 10"
    # Where the data will be, or the nearest folder above.
    assert where == [host.path("/var/lib")]
    assert host.note(SPEC["id"])["p99_ms"] == 9.0


def test_a_slow_disk_is_refused_with_its_figures(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(monkeypatch, SLOW)
    change = KIND.compare(SPEC, host)
    assert change is not None
    with pytest.raises(ResourceError) as caught:
        KIND.apply(SPEC, change, host)
    assert (
        "44.4 ms at the 99th percentile (median 1.0 ms, slowest 51.5 ms, 100 writes" in caught.value.message
    )
    assert "allowed are 10 ms" in caught.value.message and "etcd_disk_fdatasync_ms" in caught.value.remedy
    insist("etcd-disk-slow", caught.value.message)
    # Nothing is remembered: the next run measures again.
    assert KIND.compare(SPEC, host) is not None


def test_a_member_with_data_is_left_alone(host: FakeHost) -> None:
    Path(host.path(SPEC["unless"])).mkdir(parents=True)
    assert KIND.compare(SPEC, host) is None


def test_measured_again_for_a_lower_limit_another_disk_and_a_new_file_system(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(monkeypatch, FAST)
    converge(KIND, SPEC, host)
    assert KIND.compare({**SPEC, "limit_ms": 8}, host) is not None
    host.changes.add("etcd_disk/file-system")
    assert KIND.compare(SPEC, host) is not None
    host.changes.clear()
    host.remember(SPEC["id"], {**host.note(SPEC["id"]), "device": 1})
    assert KIND.compare(SPEC, host) is not None


def test_a_measurement_writes_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".ironspan-latency").write_text("of a killed run")
    samples = measure(str(tmp_path), 5, seconds=600)
    assert len(samples) == 5 and all(sample > 0 for sample in samples) and not list(tmp_path.iterdir())
    # However slow a disk is, one write is measured.
    assert len(measure(str(tmp_path), 5, seconds=0)) == 1


@pytest.mark.parametrize(
    ("samples", "percent", "found"),
    [([7.0], 99, 7.0), ([3.0, 1.0, 2.0], 50, 2.0), ([float(n) for n in range(1, 201)], 99, 198.0)],
)
def test_percentiles(samples: list[float], percent: int, found: float) -> None:
    assert percentile(samples, percent) == found


def test_a_limit_is_above_zero() -> None:
    assert KIND.check(SPEC) == [] and KIND.check({**SPEC, "limit_ms": 0})
