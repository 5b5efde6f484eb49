# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a worker costs on simulated hosts: real Ansible, real SSH, the real module, its real document."""

from __future__ import annotations

import collections.abc
import os
import pathlib
import shutil
import tempfile

import pytest

from tests.bench import worker
from tests.bench.fleet import Fleet
from tests.bench.table import Table

COUNT = 20
RUNS = 2
"""No-op runs; the cheapest counts, since other work on the machine only adds."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace of one's own needs root")


@pytest.fixture
def fleet() -> collections.abc.Iterator[Fleet]:
    # a short path: control sockets live below it
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isb-", dir="/tmp"))
    try:
        with Fleet(folder, COUNT) as made:
            for name in made.names:
                worker.make_root(made.root(name))
            yield made
    finally:
        shutil.rmtree(folder)


def test_a_worker_costs_little_to_install_and_next_to_nothing_after(fleet: Fleet, table: Table) -> None:
    run = worker.prepare(fleet)
    worker.serve_mirror(fleet)
    pings = [worker.pinged(fleet)]
    install = run()
    assert install.changed == fleet.count, install.output
    runs = []
    for number in range(RUNS):
        runs.append(run(memory=number == RUNS - 1))
        assert runs[-1].changed == 0, runs[-1].output
        assert len(runs[-1].tasks) == fleet.count, runs[-1].output
    pings.append(worker.pinged(fleet))
    one = run("--limit", f"{fleet.names[0]},localhost", keep_sent=True)
    assert one.ssh_operations == 1, one.output

    ping_controller = min(cost.each("controller_cpu") for cost in pings)
    ping_target = min(cost.each("target_cpu") for cost in pings)
    reference = worker.PING_CONTROLLER_S + worker.PING_RUN_S / fleet.count
    controller, target = max(1.0, ping_controller / reference), max(1.0, ping_target / worker.PING_TARGET_S)
    section = f"{fleet.count} workers, simulated"

    def cpu(what: str, measured: float, budget: float, scale: float) -> None:
        table.add(
            section, what, measured, budget * scale, "s", f"{budget:g} s where a ping costs what it should"
        )

    table.note(
        section,
        "ansible.builtin.ping: controller CPU a host",
        f"{ping_controller:.3f} s",
        f"where the budgets were set: {reference:.3f} s",
    )
    table.note(
        section,
        "ansible.builtin.ping: CPU of a host",
        f"{ping_target:.3f} s",
        f"where the budgets were set: {worker.PING_TARGET_S} s",
    )
    table.add(section, "install: tasks a host", max(install.tasks.values()), 10, note="kubespray: 947")
    table.add(
        section, "install: SSH operations a host", install.each("ssh_operations"), 3, note="kubespray: 370"
    )
    cpu("install: controller CPU a host", install.each("controller_cpu"), 0.3, controller)
    table.note(section, "install: CPU of a host", f"{install.each('target_cpu'):.2f} s")
    table.add(section, "no-op: SSH operations a host", max(run.each("ssh_operations") for run in runs), 1)
    # The start of a run and the validation of the inventory are paid once, however many hosts there are.
    cheapest = min(run.controller_cpu for run in runs)
    more = (cheapest - one.controller_cpu) / (fleet.count - 1)
    cpu("no-op: controller CPU of one more host", more, 0.1, controller)
    table.note(section, "no-op: controller CPU of a run on one host", f"{one.controller_cpu:.2f} s")
    table.note(section, "no-op: controller CPU, all of it, a host", f"{cheapest / fleet.count:.3f} s")
    cpu("no-op: CPU of a host", min(run.each("target_cpu") for run in runs), 0.3, target)
    table.add(section, "no-op: bytes sent to a host", one.bytes_sent / 1000, 40, "kB", "module and document")
    wall = min(run.wall for run in runs)
    table.note(section, "no-op: whole run", f"{wall:.1f} s", "controller and hosts share the machine")
    table.note(section, "largest controller process", f"{max(run.memory_kib for run in runs) / 1024:.0f} MiB")
    table.note(
        section, "all controller processes together", f"{runs[-1].memory_all_kib / 1024:.0f} MiB", "as PSS"
    )
    table.check()
