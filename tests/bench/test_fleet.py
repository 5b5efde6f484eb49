# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a worker costs on simulated hosts: real Ansible, real SSH, the real module, its real document."""

from __future__ import annotations

import base64
import collections.abc
import functools
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

from tests.bench import worker
from tests.bench.fleet import Cost, Fleet
from tests.bench.table import Table

PORT = 8080
RUNS = 3
"""No-op runs; the cheapest counts, since other work on the machine only adds."""

PLAYBOOK = """\
- import_playbook: {playbooks}/validate.yml

- name: assess
  hosts: nodes
  gather_facts: false
  tasks:
    - name: Compare with the whole document
      ironspan.hybrid.converge: {{mode: assess, root: "{{{{ user_root }}}}"}}

- name: prepare
  hosts: nodes:&ironspan_pending
  gather_facts: false
  tasks:
    - name: Converge the layers that need no credentials
      ironspan.hybrid.converge:
        layers: [base, containerd, flannel, gvisor, haproxy, node]
        root: "{{{{ user_root }}}}"

- name: nodes
  hosts: nodes:&ironspan_pending
  gather_facts: false
  tasks:
    - name: Converge the kubelet and join
      ironspan.hybrid.converge:
        layers: [node]
        join_token: abcdef.0123456789abcdef
        root: "{{{{ user_root }}}}"
"""
"""The phases of site.yml that run on a worker; what talks to the cluster's API is not simulated."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace of one's own needs root")


LARGE = pytest.param(
    250,
    marks=pytest.mark.skipif(
        "IRONSPAN_BENCH_RECORD" not in os.environ,
        reason="`make bench` measures it: a quarter of an hour on two cores",
    ),
)


@pytest.fixture(params=[20, LARGE])
def fleet(request: pytest.FixtureRequest) -> collections.abc.Iterator[Fleet]:
    # a short path: control sockets live below it
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isb-", dir="/tmp"))
    try:
        with Fleet(folder, request.param) as made:
            for name in made.names:
                worker.make_root(made.root(name))
            yield made
    finally:
        shutil.rmtree(folder)


def run_of(fleet: Fleet) -> collections.abc.Callable[..., Cost]:
    """Prepare mirror, inventory and playbook; return what runs them."""
    index = worker.make_mirror(fleet.folder / "mirror")
    fleet.serve(sys.executable, "-m", "http.server", "-d", str(index.parent), "-b", "127.0.0.1", str(PORT))
    (fleet.folder / "pki.key").write_text(base64.b64encode(os.urandom(32)).decode())
    (fleet.folder / "pki.key").chmod(0o600)
    core = {"core-1": {"ansible_host": "10.20.0.11"}}
    inventory = fleet.inventory(
        {
            "site_name": "bench",
            "site_api_endpoint": "10.20.0.11:8443",
            "site_api_address": "10.20.0.11",
            "site_mirror_url": f"http://127.0.0.1:{PORT}",
            "site_artifacts_index": str(index),
            "site_pki_store": str(fleet.folder / "pki"),
            "site_pki_key_file": str(fleet.folder / "pki.key"),
        },
        {"nodes": fleet.names, "on_prem": fleet.names, "gvisor": fleet.names},
        dict.fromkeys(("azure", "etcd", "control_plane", "haproxy"), core),
    )
    playbook = fleet.folder / "bench.yml"
    playbook.write_text(PLAYBOOK.format(playbooks=worker.ROOT / "playbooks"))
    return functools.partial(fleet.play, playbook, inventory)


PING = "- {hosts: nodes, gather_facts: false, tasks: [{ansible.builtin.ping: }]}\n"
PING_RUN_S, PING_CONTROLLER_S, PING_TARGET_S = 0.5, 0.035, 0.2
"""What ansible.builtin.ping costs where the budgets were set, an otherwise idle machine: the start of a run,
the controller's side of one host, and the host's side with its SSH session. CPU-seconds differ between
machines and stretch when neighbours are busy; the same ping in the same run tells by how much."""


def test_a_worker_costs_little_to_install_and_next_to_nothing_after(fleet: Fleet, table: Table) -> None:
    run = run_of(fleet)
    ping = fleet.folder / "ping.yml"
    ping.write_text(PING)
    pings = [fleet.play(ping, fleet.folder / "hosts.yml")]
    install = run()
    assert install.changed == fleet.count, install.output
    runs = []
    for _ in range(RUNS if fleet.count <= 20 else 1):
        runs.append(run())
        assert runs[-1].changed == 0, runs[-1].output
        assert len(runs[-1].tasks) == fleet.count, runs[-1].output
    if fleet.count <= 20:
        pings.append(fleet.play(ping, fleet.folder / "hosts.yml"))
    one = run("--limit", f"{fleet.names[0]},localhost", keep_sent=True)
    assert one.ssh_operations == 1, one.output

    ping_controller = min(cost.each("controller_cpu") for cost in pings)
    ping_target = min(cost.each("target_cpu") for cost in pings)
    reference = PING_CONTROLLER_S + PING_RUN_S / fleet.count
    controller, target = max(1.0, ping_controller / reference), max(1.0, ping_target / PING_TARGET_S)
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
        f"where the budgets were set: {PING_TARGET_S} s",
    )
    table.add(section, "install: tasks a host", max(install.tasks.values()), 10)
    table.add(section, "install: SSH operations a host", install.each("ssh_operations"), 3)
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
    table.add(section, "one execution: bytes sent", one.bytes_sent / 1000, 256, "kB", "module and document")
    wall = min(run.wall for run in runs)
    table.note(section, "no-op: whole run", f"{wall:.1f} s", "controller and hosts share the machine")
    table.note(section, "largest controller process", f"{max(run.memory_kib for run in runs) / 1024:.0f} MiB")
    table.check()
