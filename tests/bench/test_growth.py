# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The controller's CPU grows with the number of hosts, and no faster: on hosts that only answer."""

from __future__ import annotations

import collections.abc
import math
import os
import pathlib
import shutil
import tempfile

import pytest

from tests.bench import recorded, worker
from tests.bench.hosts import Cost
from tests.bench.recorded import Answers
from tests.bench.table import Table

FEW, MANY = 20, 100
EXPONENT = 1.1
MARGIN = 0.15
"""What other work on the machine may add to an exponent: a fourth more CPU for the many."""
ROUNDS = 3
"""At most; the cheapest of each counts."""


@pytest.fixture(scope="module")
def folder() -> collections.abc.Iterator[pathlib.Path]:
    made = pathlib.Path(tempfile.mkdtemp(prefix="isg-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path) -> Answers:
    return recorded.record(folder / "real")


Run = collections.abc.Callable[..., Cost]


@pytest.fixture(scope="module")
def runs(folder: pathlib.Path, answers: Answers) -> dict[int, Run]:
    return {
        count: worker.prepare(recorded.replayed(folder / str(count), count, answers)) for count in (FEW, MANY)
    }


FILE = pytest.param(
    "file",
    recorded.CHANGE,
    2,
    marks=pytest.mark.skipif("IRONSPAN_BENCH_RECORD" not in os.environ, reason="`make bench` measures it"),
)


@pytest.mark.parametrize(("scene", "options", "operations"), [("noop", (), 1), FILE])
def test_the_controller_s_work_grows_with_the_hosts(
    runs: dict[int, Run], table: Table, scene: str, options: tuple[str, ...], operations: int
) -> None:
    scenes = {"IRONSPAN_BENCH_SCENE": scene}
    start: list[float] = []
    spent: dict[int, list[float]] = {FEW: [], MANY: []}
    exponent = math.inf
    for _ in range(ROUNDS):
        start.append(runs[FEW]("--limit", "sim-0000,localhost", *options, environment=scenes).controller_cpu)
        for count, run in runs.items():
            cost = run(*options, environment=scenes)
            assert cost.ssh_operations == operations * count, cost.output
            spent[count].append(cost.controller_cpu)
        few, many = (min(spent[count]) - min(start) for count in (FEW, MANY))
        exponent = math.log(many / few) / math.log((MANY - 1) / (FEW - 1))
        if exponent <= EXPONENT:
            break
    section = "Growth"
    what = f"{scene}: controller CPU of one more host, of {FEW} / of {MANY}"
    table.note(
        section, what, f"{few / (FEW - 1):.3f} s / {many / (MANY - 1):.3f} s", "without OpenSSH's client"
    )
    table.add(section, f"{scene}: exponent", exponent, EXPONENT + MARGIN, note="1 is linear")
    table.check()
