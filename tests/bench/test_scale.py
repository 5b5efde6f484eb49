# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""250 and 1,000 workers with real SSH and the real module.

`make bench` measures them. One scene of one size alone, into the page:

IRONSPAN_BENCH_RECORD=docs/benchmarks.md pytest tests/bench/test_scale.py -k "1000 and nothing"
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import os
import pathlib
import shutil
import tempfile

import pytest

from tests.bench import clones, worker
from tests.bench.fleet import Fleet
from tests.bench.hosts import Cost
from tests.bench.table import Table

CONTROLLER_S = 0.1
"""Controller CPU of a host when nothing changes: 100 s for a thousand."""
TWICE_S = 0.2
"""The same when one file is changed everywhere: two executions a host."""
SMALL = 50
"""With fewer hosts than this the start of a run is most of it."""
MEMORY_MIB = 2048
FORKS = 50
EXPONENT = 1.1
MASTER_KIB = 1540
"""A connection master of OpenSSH (PSS, measured): a faster controller has more of them at a time."""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace of one's own needs root"),
    pytest.mark.skipif("IRONSPAN_BENCH_RECORD" not in os.environ, reason="`make bench` measures it: minutes"),
]


@dataclasses.dataclass
class Scale:
    """Converged hosts, and what runs the playbook on them."""

    fleet: Fleet
    run: collections.abc.Callable[..., Cost]
    start: float
    """Controller CPU of a run on one host."""


SIZES = [int(size) for size in os.environ.get("IRONSPAN_BENCH_SIZES", "250,1000").split(",")]
MEASURED: dict[tuple[str, int], float] = {}
"""Scene and number of hosts -> controller CPU beyond the start of a run."""


@pytest.fixture(scope="module", params=SIZES)
def scale(request: pytest.FixtureRequest) -> collections.abc.Iterator[Scale]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isb-", dir="/tmp"))
    try:
        with Fleet(folder, request.param) as fleet:
            worker.make_root(fleet.root(fleet.names[0]))
            run = worker.prepare(fleet)
            worker.serve_mirror(fleet)
            only = ("--limit", f"{fleet.names[0]},localhost")
            install = run(*only)
            assert install.changed == 1, install.output
            clones.copy_to_all(fleet)
            yield Scale(fleet, run, run(*only).controller_cpu)
    finally:
        shutil.rmtree(folder)


def record(table: Table, scale: Scale, scene: str, cost: Cost, each: float) -> None:
    count = scale.fleet.count
    section = f"{count:,} workers, simulated: {scene}"
    cpu = cost.controller_cpu
    budget = each * max(count, SMALL)
    table.add(section, "controller CPU", cpu, budget, "s", f"{FORKS} forks, one ansible-playbook")
    table.note(section, "controller CPU of a host", f"{cpu / count:.3f} s")
    table.note(section, "controller CPU of the same run on one host", f"{scale.start:.2f} s")
    table.note(section, "SSH operations", f"{cost.ssh_operations:,}")
    table.note(section, "CPU of a host", f"{cost.each('target_cpu'):.2f} s", "not the controller's")
    table.note(section, "largest controller process", f"{cost.memory_kib / 1024:.0f} MiB")
    open_ones = f"PSS of all processes, {cost.masters:,} open SSH connections among them"
    memory = cost.memory_all_kib / 1024
    table.add(section, "controller memory", memory, MEMORY_MIB, "MiB", open_ones)
    all_open = memory + max(0, count - cost.masters) * MASTER_KIB / 1024
    table.note(section, "the same with all connections open at once", f"{all_open:.0f} MiB", "worked out")
    table.note(section, "whole run", f"{cost.wall:.0f} s", "hosts share the machine with the controller")
    MEASURED[scene, count] = cpu - scale.start
    smaller = SIZES[0]
    if (scene, smaller) in MEASURED and count > smaller:
        ratio = MEASURED[scene, count] / MEASURED[scene, smaller]
        exponent = math.log(ratio) / math.log((count - 1) / (smaller - 1))
        what = f"growth from {smaller} workers, exponent"
        table.add(section, what, exponent, EXPONENT, note="beyond the start of a run; 1 is linear")
    table.check()


def test_nothing_to_do(scale: Scale, table: Table) -> None:
    cost = scale.run(memory=True)
    assert cost.changed == 0, cost.output
    assert len(cost.tasks) == scale.fleet.count, cost.output
    assert cost.ssh_operations == scale.fleet.count
    record(table, scale, "nothing to do", cost, CONTROLLER_S)


def test_one_host_changed(scale: Scale, table: Table) -> None:
    (scale.fleet.root(scale.fleet.names[-1]) / "etc/containerd/config.toml").unlink()
    cost = scale.run(memory=True)
    assert cost.changed == 1, cost.output
    assert cost.ssh_operations == scale.fleet.count + 1
    record(table, scale, "one host changed", cost, CONTROLLER_S)


def test_one_file_changed_everywhere(scale: Scale, table: Table) -> None:
    cost = scale.run("-e", "base_hosts_entries=endpoint", memory=True)
    assert cost.changed == scale.fleet.count, cost.output
    assert cost.ssh_operations == 2 * scale.fleet.count
    record(table, scale, "one file changed everywhere", cost, TWICE_S)
