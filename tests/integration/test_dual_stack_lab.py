# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster of two address families in the lab: pods of both sides reach each other and a service by both."""

from __future__ import annotations

import json
import shlex
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ironspan.lab import network, state
from ironspan.lab.commands import run
from tests.integration.conftest import Cluster, lab_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long]

KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
NETWORKS = {"site_pod_cidr_ipv6": "fd00:10:244::/48", "site_service_cidr_ipv6": "fd00:10:96::/108"}
SIDES = {"azure": "fd00:98:a::", "rack": "fd00:98:b::"}
PODS = {"pod-az": "az-1", "pod-rack": "rack-1"}
SERVE = "mkdir -p /tmp/www && echo here >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"


class Site(Cluster):
    """The lab with IPv6 addresses for its hosts and routers, which it does not have by itself."""

    def site(self, *options: str) -> t.Any:
        """Run site.yml for two families."""
        hosts = {name: {"site_address_ipv6": own} for name, own in self.give_addresses().items()}
        more = self.folder / "more.yml"
        more.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        return super().site("-i", str(more), "-e", json.dumps(NETWORKS), *options)

    def give_addresses(self) -> dict[str, str]:
        """Give every host an IPv6 address and a way to the other side; both routers too."""
        current = state.load(self.lab.name)
        assert current is not None
        layout = current.layout
        for side in layout.sites:
            other = SIDES[layout.other(side).key]
            inside = ["ip", "-n", side.namespace, "-6"]
            run([*inside, "address", "replace", f"{SIDES[side.key]}fe/64", "dev", network.LAN, "nodad"])
            run([*inside, "route", "replace", f"{other}/64", "dev", network.WAN])
            enable = "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"
            run(["ip", "netns", "exec", side.namespace, "sh", "-c", enable])
        given = {}
        for number, host in enumerate(layout.hosts, 0x11):
            prefix = SIDES[host.site.key]
            given[host.name] = f"{prefix}{number:x}"
            self.on(
                host.name,
                f"interface=$(ip -4 -o route get {host.site.router} | sed 's/.* dev \\([^ ]*\\).*/\\1/') && "
                f"ip -6 address replace {given[host.name]}/64 dev $interface nodad && "
                f"ip -6 route replace default via {prefix}fe dev $interface",
            )
        return given

    def apply(self, made: dict[str, t.Any]) -> None:
        """Apply an object."""
        self.on("az-1", f"echo {shlex.quote(json.dumps(made))} | {KUBECTL} apply -f -")

    def start_pods(self) -> None:
        """Start a server on each side, and a service before both."""
        for name, node in PODS.items():
            image = "docker.io/library/busybox:1.37.0"
            container = {"name": "main", "image": image, "command": ["/bin/sh", "-c", SERVE]}
            spec = {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            }
            meta = {"name": name, "labels": {"app": "both"}}
            self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        service = {
            "selector": {"app": "both"},
            "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"port": 80, "targetPort": 8080}],
        }
        self.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "both"}, "spec": service})
        pods = " ".join(f"pod/{name}" for name in PODS)
        self.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=150s {pods}")

    def reaches(self, pod: str, address: str, port: int) -> bool:
        """Tell whether a pod gets an answer from an address."""
        host = f"[{address}]" if ":" in address else address
        get = f"{KUBECTL} exec {pod} -- wget -T 5 -q -O - http://{host}:{port}/"
        return self.on("az-1", get, check=False) == "here"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Return the cluster: one host a side."""
    with lab_cluster(Site, "duallab", azure=1, rack=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output
        made.start_pods()
        yield made


def test_nodes_have_addresses_and_parts_of_both_families(site: Site) -> None:
    for node in site.kubectl("get", "nodes")["items"]:
        own = [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"]
        assert [":" in address for address in own] == [False, True]
        assert [":" in part for part in node["spec"]["podCIDRs"]] == [False, True]


def test_pods_reach_each_other_across_the_wan_by_both(site: Site) -> None:
    pods = {
        each["metadata"]["name"]: each["status"]["podIPs"] for each in site.kubectl("get", "pods")["items"]
    }
    for source in PODS:
        for target in PODS:
            assert len(pods[target]) == 2
            for each in pods[target]:
                asked = (source, each["ip"], 8080)
                until(lambda asked=asked: site.reaches(*asked), 120, 1)  # type: ignore[misc]


def test_a_service_has_an_address_of_each_family(site: Site) -> None:
    addresses = site.kubectl("get", "service", "both")["spec"]["clusterIPs"]
    assert [":" in address for address in addresses] == [False, True]
    for source in PODS:
        for address in addresses:
            asked = (source, address, 80)
            until(lambda asked=asked: site.reaches(*asked), 120, 1)  # type: ignore[misc]


def test_packets_fit_through_the_tunnel_over_ipv6(site: Site) -> None:
    mtu = site.on("az-1", f"{KUBECTL} exec pod-rack -- cat /sys/class/net/eth0/mtu")
    assert int(mtu) == 1400 - 70


def test_a_second_run_changes_nothing(site: Site) -> None:
    played = site.site()
    assert (played.status, played.changed) == (0, {}), played.output
