# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One more worker in a cluster of 1,000 costs what it does in one of 20, and the check of the inventory.

The host only answers, the API is one in memory with all the nodes; everything else is real. What Ansible
itself spends on an inventory of that size is measured by a playbook with as many tasks that do nothing, and
taken off.
"""

from __future__ import annotations

import collections.abc
import contextlib
import math
import pathlib
import shutil
import tempfile
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, open_store

from tests.bench import recorded, worker
from tests.bench.hosts import ROOT, Cost
from tests.bench.replay import Replayed
from tests.bench.table import Table
from tests.support.fake_api import NODES, FakeApi, Joins, server_files

FEW, MANY = 20, 1000
OTHER_HOST_MS = 2.4
"""CPU that one of the other hosts may cost: what ``validate`` may take for one of 5,000, since the whole
inventory is checked before anything is done (0.7 to 1.1 measured). To contact one costs 60 and more."""
ROUNDS = 3
"""At most; the cheapest of each counts."""
POLLS = 3
"""Requests that a wait makes more or less."""
API_NAME = "api.bench"
SECTION = "One more worker (node_add.yml), simulated"
IDLE = "- {hosts: HOST, gather_facts: false, tasks: [{ansible.builtin.debug: {msg: nothing}}]}\n"
"""A play with one task that does nothing and contacts nobody."""


class Api(FakeApi):
    """All nodes are there and Ready but the new one, which joins as soon as the cluster is ready for it."""

    new: str
    addresses: t.Mapping[str, str]

    def fill(self) -> None:
        """Add the nodes that are there before."""
        for name in self.addresses:
            if name != self.new:
                self.objects[f"{NODES}/{name}"] = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
                }

    def _look(self) -> None:
        assert self.joins
        ready = any(path.endswith("/kubeadm:node-autoapprove-certificate-rotation") for path in self.objects)
        joined = self.joins.folder / "joined" / self.new
        if ready and not joined.exists():
            joined.touch()
        super()._look()
        for path, node in self.objects.items():
            folder, _, name = path.rpartition("/")
            if folder == NODES and "status" not in node:
                node.setdefault("spec", {})
                node["status"] = {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": self.addresses[name]}],
                    "nodeInfo": {"kubeletVersion": f"v{worker.defaults('site')['site_kubernetes_version']}"},
                }


@contextlib.contextmanager
def api_of(hosts: Replayed, store: Store) -> collections.abc.Iterator[Api]:
    addresses = {name: hosts.site_address(index) for index, name in enumerate(hosts.names)}
    shutil.rmtree(hosts.folder / "api", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="isf-") as folder:
        certificate = server_files(store, pathlib.Path(folder), API_NAME)
        joins = Joins(hosts.folder / "api", addresses)
        api = Api(certificate, store.ca("kubernetes").certificate_pem, joins)
        api.new, api.addresses = hosts.names[-1], addresses
        api.fill()
        with api:
            yield api


@pytest.fixture(scope="module")
def folder() -> collections.abc.Iterator[pathlib.Path]:
    made = pathlib.Path(tempfile.mkdtemp(prefix="isn-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path) -> recorded.Answers:
    return recorded.record(folder / "real")


def added(hosts: Replayed) -> tuple[Cost, list[str]]:
    """Add the last host; return what it cost and what the API was asked."""
    worker.prepare(hosts)
    settings = worker.variables(hosts.folder)
    store = open_store(settings["site_pki_store"], settings["site_pki_key_file"])
    store.ensure_cas()
    with api_of(hosts, store) as api:
        endpoint = {
            "site_api_endpoint": f"{API_NAME}:{api.port}",
            "site_api_address": "127.0.0.1",
            "site_lab": True,
        }
        worker.prepare(hosts, **endpoint)
        cost = hosts.play(
            ROOT / "playbooks" / "node_add.yml",
            hosts.folder / "hosts.yml",
            "-e",
            f"ironspan_hosts={hosts.names[-1]}",
            environment={"IRONSPAN_BENCH_SCENE": "install"},
        )
        return cost, list(api.asked)


def idle(hosts: Replayed, tasks: int) -> Cost:
    """Run as many plays and tasks that do nothing, on the same inventory."""
    playbook = hosts.folder / "idle.yml"
    playbook.write_text(IDLE.replace("HOST", hosts.names[-1]) * tasks)
    cost = hosts.play(playbook, hosts.folder / "hosts.yml")
    assert cost.tasks[hosts.names[-1]] == tasks, cost.output
    return cost


def test_one_more_node_costs_the_same_in_any_cluster(
    folder: pathlib.Path, answers: recorded.Answers, table: Table
) -> None:
    clusters = {count: recorded.replayed(folder / str(count), count, answers) for count in (FEW, MANY)}
    for hosts in clusters.values():
        hosts.tell("install", recorded.asking_as(hosts.names[-1], answers["install"]), hosts.names[-1])
    whole: dict[int, list[float]] = {FEW: [], MANY: []}
    reading: dict[int, list[float]] = {FEW: [], MANY: []}
    requests: dict[int, list[str]] = {}
    other = math.inf
    for _ in range(ROUNDS):
        for count, hosts in clusters.items():
            cost, asked = added(hosts)
            new = hosts.names[-1]
            assert cost.ssh_operations == 3, cost.output
            assert set(cost.tasks) == {new}, cost.output
            requests[count] = [request.replace(new, "NEW") for request in asked]
            whole[count].append(cost.controller_cpu)
            reading[count].append(idle(hosts, cost.tasks[new] + cost.tasks_of_controller).controller_cpu)
        few, many = (min(whole[count]) - min(reading[count]) for count in (FEW, MANY))
        other = (many - few) / (MANY - FEW) * 1000
        if other <= OTHER_HOST_MS:
            break
    assert f"GET {NODES}" not in requests[MANY], "all nodes were asked for"
    table.note(SECTION, "SSH operations / hosts contacted", "3 / 1")
    for count in (FEW, MANY):
        spent = f"{min(whole[count]):.2f} s, {min(reading[count]):.2f} s of it Ansible's own"
        table.note(SECTION, f"among {count:,}: controller CPU", spent, "start and reading of the inventory")
    table.add(SECTION, "requests to the API", len(requests[MANY]), len(requests[FEW]) + POLLS)
    table.add(SECTION, "ironspan's own CPU for each of the other hosts", other, OTHER_HOST_MS, "ms")
    table.note(
        SECTION, "kubespray among 1,000", "about 60 min", "published: kubespray issue 10449; facts of all"
    )
    table.check()
