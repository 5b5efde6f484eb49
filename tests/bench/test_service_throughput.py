# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a service costs: bytes a second to its address and to its only pod's, with either pod network.

Two workers beside each other, pods of runc, no WAN between them. Both addresses are asked in the same run, by
turns, so the ratio means something where the bytes a second, on cores that all hosts share, do not:
IRONSPAN_BENCH_RECORD=docs/benchmarks.md pytest -m long tests/bench/test_service_throughput.py
"""

from __future__ import annotations

import json
import shlex
import statistics
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.artifacts import cache, index
from tests.bench.table import Table
from tests.integration.conftest import Cluster, lab_cluster
from tests.support.playbooks import Played
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long]
SECTION = "Services"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
PROXIES = {"flannel": "kube-proxy with nftables", "cilium": "Cilium's eBPF"}
CILIUM = "quay.io/cilium/cilium:v1.20.1"
MEBIBYTES, ROUNDS = 512, 10
LEAST = 0.5
"""Of the bytes a second to the pod itself; a service whose packets leave the kernel would be below it."""
SERVE = f"mkdir -p /tmp/www && truncate -s {MEBIBYTES}M /tmp/www/zeros && exec httpd -f -p 8080 -h /tmp/www"
FETCH = (
    "set -e; read begun _ </proc/uptime; wget -q -O /dev/null http://{}/zeros; "
    "read ended _ </proc/uptime; echo $begun $ended"
)


class Site(Cluster):
    """A cluster with one of the pod networks."""

    network: t.ClassVar[str]

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        return super().site("-e", f"site_cni={self.network}", *options)

    def admin(self, command: str) -> str:
        """Run kubectl as administrator."""
        return self.on("az-1", f"{KUBECTL} {command}")

    def seconds(self, place: str) -> float:
        """Return how long the client's pod takes to fetch everything from ``address:port``."""
        said = self.admin(f"exec client -- /bin/sh -c {shlex.quote(FETCH.format(place))}")
        begun, ended = map(float, said.split())
        return ended - begun


def pod(name: str, node: str, command: str) -> dict[str, t.Any]:
    """Return a pod on a node."""
    container = {
        "name": "main",
        "image": "docker.io/library/busybox:1.37.0",
        "command": ["/bin/sh", "-c", command],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


@pytest.fixture(params=PROXIES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A cluster with a server on one worker, a client on the other one, and a service."""
    Site.network = request.param
    if request.param == "cilium" and CILIUM not in index.load(cache.Cache().index_path).images:
        pytest.skip("the mirror lacks Cilium: ironspan artifacts build --set cilium")
    with lab_cluster(Site, "servicebench", azure=1, rack=2, azure_services=False) as made:
        assert made.first is not None and made.first.status == 0, made.first and made.first.output
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "server"},
            "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
        items = [pod("server", "rack-1", SERVE), pod("client", "rack-2", "exec sleep 86400"), service]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        made.on("az-1", f"echo {shlex.quote(text)} | {KUBECTL} apply -f -")
        made.admin("wait --for=condition=Ready --timeout=300s pod/server pod/client")
        yield made


def test_a_service_carries_what_its_pod_carries(site: Site, table: Table) -> None:
    direct = site.kubectl("get", "pod", "server")["status"]["podIP"] + ":8080"
    service = site.kubectl("get", "service", "server")["spec"]["clusterIP"] + ":80"
    # Its endpoints may be known a moment after its pod is ready.
    until(lambda: "404" in site.admin(f"exec client -- wget -O - http://{service}/none 2>&1 || true"), 60, 1)
    ratios, speeds = [], []
    for number in range(ROUNDS):
        took = {}
        for place in (direct, service) if number % 2 else (service, direct):
            took[place] = site.seconds(place)
        ratios.append(took[direct] / took[service])
        speeds.append(MEBIBYTES / took[direct])
    what = f"{PROXIES[site.network]}: bytes a second to a service, of those to its pod"
    spread = f"from {min(ratios):.2f} to {max(ratios):.2f} in {ROUNDS} rounds"
    note = f"{spread}; {statistics.median(speeds):.0f} MiB a second"
    table.note(SECTION, what, f"{statistics.median(ratios):.3g}", note)
    assert statistics.median(ratios) >= LEAST, note
