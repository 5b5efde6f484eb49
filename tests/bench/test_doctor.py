# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the doctor costs the controller: linear, and like a run that changes nothing."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import typing as t

from tests.bench import worker
from tests.bench.hosts import ROOT
from tests.bench.replay import Replayed
from tests.bench.table import Table
from tests.unit.doctor.samples import answer

PLAYBOOK = """\
- import_playbook: {playbooks}/doctor.yml
"""
EACH_S = 0.1
"""Controller CPU of one host where a ping costs what it should: as for a run that changes nothing."""
SMALL, LARGE = 20, 120


def cpu_of(count: int) -> tuple[float, float, str]:
    """Return the CPU seconds of a doctor's run over so many hosts, those of a ping of them, and the page."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isd-", dir="/tmp"))
    try:
        hosts = Replayed(folder, count)
        health: dict[str, t.Any] = answer("containerd.service", "kubelet.service")
        for name in ("skew_s", "skew_uncertain_s"):
            health.pop(name)
        hosts.tell("ping", [{"changed": False, "ping": "pong"}])
        hosts.tell("noop", [{"changed": False, "health": {**health, "time_unix": 0, "seconds": 0.3}}])
        worker.prepare(hosts)
        playbook = folder / "doctor.yml"
        playbook.write_text(PLAYBOOK.format(playbooks=ROOT / "playbooks"))
        cost = hosts.play(
            playbook, folder / "hosts.yml", "--limit", "nodes,localhost",
            environment={"IRONSPAN_BENCH_SCENE": "noop"},
        )  # fmt: skip
        assert cost.ssh_operations == count, cost.output[-2000:]
        return cost.controller_cpu, worker.pinged(hosts).controller_cpu, cost.output
    finally:
        shutil.rmtree(folder)


def test_the_doctor_costs_what_a_run_without_changes_costs(table: Table) -> None:
    small, pinged_small, _ = cpu_of(SMALL)
    large, pinged_large, output = cpu_of(LARGE)
    assert f"{LARGE} of {LARGE} hosts answered" in output, output[-2000:]
    # The clocks of these hosts stand at 1970: said in one line a host that differs, not lost.
    assert "behind the controller's" in output
    each, ping = (
        (more - few) / (LARGE - SMALL) for few, more in ((small, large), (pinged_small, pinged_large))
    )
    reference = worker.PING_CONTROLLER_S
    what, note = "controller CPU of one more host", f"where the budgets were set: {reference} s"
    table.note("Doctor", f"ansible.builtin.ping: {what}", f"{ping:.3f} s", note)
    table.add("Doctor", what, each, EACH_S * max(1.0, ping / reference), "s", f"{EACH_S} s where that is so")
    table.check()
