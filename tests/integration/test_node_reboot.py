# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes on which a change waits for a boot: drained, rebooted in turn, and back when they say so."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import drivers

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import play

pytestmark = [
    pytest.mark.lab,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]

REQUEST = {"resource": "nvidia_driver/reboot", "reason": "the GPU driver is used from then on", "since": 1}
WORKERS = ("rack-1", "rack-2")
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
NAMED = ("-e", json.dumps({"ironspan_hosts": list(WORKERS)}))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of one control plane and two workers."""
    with tempfile.TemporaryDirectory(prefix="isb-") as folder:
        lab = Lab(lab_name("reboottest"))
        lab.down()
        lab.up(azure=1, rack=2, azure_services=False)
        made = Cluster(lab, pathlib.Path(folder))
        try:
            built = play("site", made.inventory, made.folder)
            assert built.status == 0, built.output
            yield made
        finally:
            lab.down()


def boots(cluster: Cluster) -> dict[str, str]:
    return {name: cluster.on(name, "cat /proc/sys/kernel/random/boot_id") for name in WORKERS}


def nodes(cluster: Cluster) -> dict[str, tuple[bool, str]]:
    """Return of each worker whether it is cordoned, and the boot that its kubelet reports."""
    shown = json.loads(cluster.on("az-1", f"{KUBECTL} get nodes -o json"))["items"]
    return {
        node["metadata"]["name"]: (
            bool(node["spec"].get("unschedulable")),
            node["status"]["nodeInfo"]["bootID"],
        )
        for node in shown
        if node["metadata"]["name"] in WORKERS
    }


def ask_for_a_boot(cluster: Cluster, *names: str) -> None:
    """Leave on hosts what an applied change of the GPU driver leaves."""
    for name in names:
        file = "/run/ironspan/reboot/nvidia_driver-reboot"
        cluster.on(name, f"mkdir -p /run/ironspan/reboot; echo '{json.dumps(REQUEST)}' > {file}")


def test_a_check_shows_the_boot_and_reboots_nothing(cluster: Cluster) -> None:
    ask_for_a_boot(cluster, *WORKERS)
    before = boots(cluster)
    shown = play("upgrade", cluster.inventory, cluster.folder, "--check", *NAMED)
    assert shown.status == 0, shown.output
    assert boots(cluster) == before
    assert not any(cordoned for cordoned, _ in nodes(cluster).values())


def test_nodes_that_wait_are_rebooted_and_come_back(cluster: Cluster) -> None:
    before = boots(cluster)
    done = play("upgrade", cluster.inventory, cluster.folder, *NAMED)
    assert done.status == 0, done.output
    now = boots(cluster)
    assert all(now[name] != before[name] for name in WORKERS)
    assert nodes(cluster) == {name: (False, now[name]) for name in WORKERS}
    assert cluster.on("rack-1", "ls /run/ironspan/reboot", check=False) == ""
    # One rack has one node out of service at a time: what the second one said came after the first was open.
    first, second = (done.output.index(f"changed: [{name}]", done.output.index("Reboot")) for name in WORKERS)
    assert "Uncordon" in done.output[min(first, second) : max(first, second)]


def test_nothing_reboots_where_nothing_waits(cluster: Cluster) -> None:
    before = boots(cluster)
    done = play("upgrade", cluster.inventory, cluster.folder, *NAMED)
    assert done.status == 0, done.output
    assert boots(cluster) == before


def test_a_run_that_was_killed_before_the_boot_is_finished_by_the_next(cluster: Cluster) -> None:
    """Nobody names the node: it is cordoned by a change, and something on it still waits for a boot."""
    ask_for_a_boot(cluster, "rack-1")
    cluster.on("az-1", f"{KUBECTL} cordon rack-1; {KUBECTL} annotate node rack-1 {cordon.ANNOTATION}=upgrade")
    before = boots(cluster)
    done = play("upgrade", cluster.inventory, cluster.folder)
    assert done.status == 0, done.output
    now = boots(cluster)
    assert (now["rack-1"] != before["rack-1"], now["rack-2"]) == (True, before["rack-2"])
    assert nodes(cluster)["rack-1"] == (False, now["rack-1"])


def test_a_run_that_was_killed_while_it_changed_a_driver_is_taken_up(cluster: Cluster) -> None:
    """Nobody names the node, and nothing on it waits for a boot; what was noted goes with the cordon."""
    change = drivers.Change("570.1.1", "580.2.2").text()
    cluster.on("az-1", f"{KUBECTL} cordon rack-2; {KUBECTL} annotate node rack-2 {cordon.ANNOTATION}=upgrade")
    cluster.on("az-1", f"{KUBECTL} annotate node rack-2 {cordon.DRIVER_CHANGE}='{change}'")
    before = boots(cluster)
    done = play("upgrade", cluster.inventory, cluster.folder)
    assert done.status == 0, done.output
    assert "Drain the nodes of this wave" in done.output
    assert boots(cluster) == before
    assert nodes(cluster)["rack-2"] == (False, before["rack-2"])
    left = json.loads(cluster.on("az-1", f"{KUBECTL} get node rack-2 -o json"))["metadata"]["annotations"]
    assert not {cordon.ANNOTATION, cordon.DRIVER_CHANGE} & set(left)
