# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names in a rack while the WAN is cut, on a small cluster: CoreDNS on both sides, a cache on every node.

A pod of the rack asks from inside its own network namespace, and every question is counted. Answers live one
second here, so what is answered later than that comes out of a cache whose source is away, or from a server
on the rack's side.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import Cluster, lab_cluster
from tests.integration.test_dns_cache import quick
from tests.support import dns_server
from tests.support.dns_templates import ADDRESS, CLUSTER_DNS
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long]

KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
SERVICE, OUTSIDE = "kubernetes.default.svc.cluster.local", "api.lab.internal"
COREFILE = "/etc/ironspan-dns/Corefile"
CUT_SECONDS = 25
ZONE = "topology.kubernetes.io/zone"
#: Runs behind the source of dns_server: asks all targets again and again, prints what became of it.
ASKING = """
import json, sys, time
targets, seconds = json.loads(sys.argv[1]), float(sys.argv[2])
counts = {key: {"asked": 0, "answered": 0, "ttl": 0} for key in targets}
end = time.monotonic() + seconds
while time.monotonic() < end:
    for key, (server, name) in targets.items():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            answer = ask(client, server, name, 3 if server.startswith("169.254.") else 1)
        counts[key]["asked"] += 1
        if answer and answer.code == NOERROR and answer.addresses:
            counts[key]["answered"] += 1
            counts[key]["ttl"] = answer.ttl
    time.sleep(0.2)
print(json.dumps(counts))
"""

Counts = dict[str, dict[str, int]]


class Site(Cluster):
    """The cluster with zones, CoreDNS managed, and a cache on every node."""

    def site(self, *options: str) -> t.Any:
        """Run site.yml with names that outlive the link."""
        labels = {group: {ZONE: group.replace("_", "-")} for group in ("azure", "on_prem")}
        zones = self.folder / "zones.yml"
        zones.write_text(
            yaml.safe_dump({key: {"vars": {"site_labels": each}} for key, each in labels.items()})
        )
        variables = {"dns_managed": True, "dns_node_cache": True, "dns_resolvers": [self.resolver]}
        return super().site("-i", str(zones), "-e", json.dumps(variables), *options)

    @property
    def resolver(self) -> str:
        """Return the resolver of the Azure side, which the rack reaches through the WAN only."""
        return str(re.findall(r"site_mirror_url: http://([0-9.]+):8080", self.inventory.read_text())[0])

    def servers(self) -> dict[str, str]:
        """Return the CoreDNS pods that are ready, each with its node."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"]
            )
        }

    def start_pod(self) -> None:
        """Start the pod that asks, on the rack's side."""
        spec = {
            "nodeName": "rack-1",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "main", "image": "docker.io/library/busybox:1.37.0", "command": ["sleep", "86399"]}
            ],
        }
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asking"}, "spec": spec}
        self.on("az-1", f"echo {shlex.quote(json.dumps(made))} | {KUBECTL} apply -f -")
        self.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=150s pod/asking")

    def shorten(self) -> None:
        """Let answers of the rack's cache be fresh for a second only."""
        text = quick(self.on("rack-1", f"cat {COREFILE}") + "\n")
        self.on("rack-1", f"echo {shlex.quote(text)} > {COREFILE} && systemctl restart ironspan-dns")
        until(lambda: self.ask(1)["cache, cluster"]["answered"])

    def ask(self, seconds: float) -> Counts:
        """Let the pod ask everything for a while."""
        targets = {
            "cache, cluster": (ADDRESS, SERVICE),
            "cache, outside": (ADDRESS, OUTSIDE),
            "service, cluster": (CLUSTER_DNS, SERVICE),
            "resolver, outside": (self.resolver, OUTSIDE),
        }
        source = Path(dns_server.__file__).read_text(encoding="utf-8") + ASKING
        inside = "nsenter --target $(pgrep -of '^sleep 86399') --net python3 -"
        command = f"{inside} {shlex.quote(json.dumps(targets))} {seconds}"
        done = subprocess.run(
            self.lab.ssh_command("rack-1", [command]),
            input=source,
            text=True,
            capture_output=True,
            check=False,
            timeout=seconds + 180,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def ask_while_cut(self) -> Counts:
        """Let the pod ask while the link is cut."""
        assert all(each["answered"] for each in self.ask(3).values())
        self.lab.link(cut=True)
        try:
            return self.ask(CUT_SECONDS)
        finally:
            self.lab.link(cut=False)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Return the cluster: one host a side."""
    with lab_cluster(Site, "dnslab", azure=1, rack=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output
        yield made


def test_the_clusters_servers_are_two_apart_and_guarded(site: Site) -> None:
    until(lambda: sorted(site.servers().values()) == ["az-1", "rack-1"], 300, 2)
    deployment = site.kubectl("get", "deployment", "-n", "kube-system", "coredns")["spec"]
    assert deployment["replicas"] == 2
    template = deployment["template"]["spec"]
    terms = template["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert "kubernetes.io/hostname" in {each["podAffinityTerm"]["topologyKey"] for each in terms}
    assert ZONE in {each["topologyKey"] for each in template["topologySpreadConstraints"]}
    budget = site.kubectl("get", "pdb", "-n", "kube-system", "coredns")
    assert budget["status"]["expectedPods"] == 2
    assert budget["status"]["disruptionsAllowed"] == 1
    service = site.kubectl("get", "service", "-n", "kube-system", "kube-dns")["spec"]
    assert service["trafficDistribution"] == "PreferSameZone"


def test_a_second_run_changes_nothing(site: Site) -> None:
    played = site.site()
    assert (played.status, played.changed) == (0, {}), played.output


def test_a_cut_link_stops_no_name_that_the_rack_can_know(site: Site) -> None:
    site.start_pod()
    site.shorten()
    counts = site.ask_while_cut()
    print(json.dumps(counts))
    assert counts["resolver, outside"]["answered"] == 0, "the link was not cut"
    for target in ("cache, cluster", "cache, outside", "service, cluster"):
        assert counts[target]["answered"] == counts[target]["asked"] > 5, (target, counts)
    assert counts["cache, outside"]["ttl"] == 30, "the answer was fresh"


def test_with_every_server_in_azure_the_nodes_cache_answers(site: Site) -> None:
    site.on("az-1", f"{KUBECTL} cordon rack-1")
    for pod, node in site.servers().items():
        if node == "rack-1":
            site.on("az-1", f"{KUBECTL} delete pod -n kube-system {pod}")
    until(lambda: sorted(site.servers().values()) == ["az-1", "az-1"], 300, 2)
    until(lambda: all(each["answered"] for each in site.ask(1).values()))
    counts = site.ask_while_cut()
    print(json.dumps(counts))
    assert counts["service, cluster"]["answered"] == 0, "a server was on the rack's side"
    for target in ("cache, cluster", "cache, outside"):
        assert counts[target]["answered"] == counts[target]["asked"] > 3, (target, counts)
