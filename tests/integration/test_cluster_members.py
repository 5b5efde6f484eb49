# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Members of a small cluster are replaced, removed and added, the one that started it first of all."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration import member_cases
from tests.integration.conftest import Cluster
from tests.support.playbooks import Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODES = {"az-1", "az-2", "rack-1", "rack-2"}


def run(cluster: Cluster, playbook: str, host: str) -> Played:
    options = ["-e", f"ironspan_hosts={host}", "-e", "ironspan_allow_destructive=true"]
    played = play(playbook, cluster.inventory, cluster.folder, *options)
    assert played.status == 0, played.output
    return played


class Watch:
    """Asks the API for its readiness, through the load balancer, ten times a second."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._end = threading.Event()
        self.asked = 0
        self.lost: list[str] = []

    def __call__(self) -> None:
        context = ssl._create_unverified_context()
        while not self._end.wait(0.1):
            connection = http.client.HTTPSConnection(self._address, 8443, timeout=5, context=context)
            self.asked += 1
            try:
                connection.request("GET", "/readyz")
                status = connection.getresponse().status
                if status != 200:
                    self.lost.append(str(status))
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
            finally:
                connection.close()

    def stop(self) -> None:
        self._end.set()


@contextmanager
def watched(cluster: Cluster) -> Iterator[Watch]:
    watch = Watch(cluster.address("az-3"))
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()


def etcd_servers(cluster: Cluster, host: str) -> list[str]:
    """Return the members that a running API server was told."""
    line = cluster.on(host, "grep -h -- --etcd-servers= /etc/kubernetes/manifests/kube-apiserver.yaml")
    return sorted(url.split("//")[1].split(":")[0] for url in line.partition("=")[2].split(","))


def backends(cluster: Cluster) -> list[str]:
    lines = cluster.on("az-3", "grep -h '^    server ' /etc/haproxy/ironspan.cfg").splitlines()
    return [line.split()[1] for line in lines]


def ready(cluster: Cluster, host: str) -> set[str]:
    """Return the nodes that are Ready, asked on a host."""
    command = "kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o json"
    return {
        str(node["metadata"]["name"])
        for node in json.loads(cluster.on(host, command))["items"]
        for condition in node["status"]["conditions"]
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }


def identity_of(cluster: Cluster) -> str:
    """Return what another cluster would have another one of."""
    command = "kubectl --kubeconfig /etc/kubernetes/admin.conf get namespace kube-system"
    return cluster.on("az-2", f"{command} -o jsonpath={{.metadata.uid}}")


def test_the_host_that_started_the_cluster_is_replaced(cluster: Cluster) -> None:
    assert cluster.first is not None
    assert cluster.first.status == 0, cluster.first.output
    identity = cluster.on(
        "az-2",
        "kubectl --kubeconfig /etc/kubernetes/admin.conf get ns kube-system -o jsonpath={.metadata.uid}",
    )
    before = member_cases.started(cluster, "az-2", "az-3")
    with watched(cluster) as watch:
        run(cluster, "member_replace", "az-1")
    assert member_cases.healthy(cluster) == [True, True, True]
    assert member_cases.started(cluster, "az-2", "az-3") == before
    assert ready(cluster, "az-1") == NODES
    now = cluster.on(
        "az-2",
        "kubectl --kubeconfig /etc/kubernetes/admin.conf get ns kube-system -o jsonpath={.metadata.uid}",
    )
    assert now == identity
    assert cluster.site().changed == {}
    # What was being answered by the API server that went is all that may be lost.
    assert watch.asked > 100
    assert len(watch.lost) <= 5, watch.lost


def test_an_empty_disk(cluster: Cluster) -> None:
    member_cases.an_empty_disk_is_refused_by_site_and_fixed_by_a_replacement(cluster)


def test_the_host_that_started_the_cluster_leaves_and_comes_back(cluster: Cluster) -> None:
    addresses = sorted(cluster.address(host) for host in member_cases.MEMBERS)
    with watched(cluster) as watch:
        run(cluster, "member_remove", "az-1")
    assert len(watch.lost) <= 5, watch.lost
    assert member_cases.healthy(cluster) == [True, True]
    assert etcd_servers(cluster, "az-2") == [a for a in addresses if a != cluster.address("az-1")]
    assert backends(cluster) == ["az-2"]
    assert ready(cluster, "az-2") == NODES - {"az-1"}
    assert cluster.on("az-1", "ls /etc/kubernetes /etc/etcd /var/lib/etcd/* 2>/dev/null", check=False) == ""

    run(cluster, "member_add", "az-1")
    assert member_cases.healthy(cluster) == [True, True, True]
    assert [etcd_servers(cluster, host) for host in ("az-1", "az-2")] == [addresses, addresses]
    assert backends(cluster) == ["az-1", "az-2"]
    assert ready(cluster, "az-1") == NODES
    assert cluster.site().changed == {}


def test_a_dead_host_is_built_again_at_its_address(cluster: Cluster) -> None:
    """All that made az-2 a member is gone, as with a new machine; nothing of it was told to the cluster."""
    wipe = (
        "systemctl disable --now kubelet etcd containerd; rm -rf /etc/kubernetes /etc/etcd /var/lib/etcd/* "
        "/var/lib/kubelet/* /var/lib/ironspan; for p in $(pgrep 'kube-|containerd-shim'); do kill -9 $p; done"
    )
    cluster.on("az-2", wipe, check=False)
    time.sleep(2)
    run(cluster, "member_replace", "az-2")
    assert member_cases.healthy(cluster, "az-1") == [True, True, True]
    assert ready(cluster, "az-2") == NODES
    assert cluster.site().changed == {}
