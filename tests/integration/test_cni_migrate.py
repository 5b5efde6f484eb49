# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A running cluster is moved from flannel to Cilium, a node back and forth again, and flannel is taken away.

A workload of two replicas is asked all the time, from every host. A pod on every host asks all the time for
what its host's egress table lets through and for what it does not, as no network policy holds meanwhile. The
tests tell one story, in this order; each of them is one run of a playbook.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import time
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.migration import LABEL, MOVED

from ironspan.artifacts import cache, index
from ironspan.lab import state
from tests.integration.conftest import Cluster, lab_cluster
from tests.integration.test_cilium_lab import Target
from tests.support.playbooks import BIN, ROOT, Played, play
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long]

IMAGES = ("quay.io/cilium/cilium:v1.20.1", "quay.io/cilium/operator-generic:v1.20.1")
HOSTS = ("az-1", "rack-1", "rack-2")
BEFORE, AFTER = "10.244.", "10.245."
MOVING = {
    "site_cni_migration_cidr": "10.245.0.0/16",
    "cilium_tunnel_port": 8473,
    "egress_pod_interfaces": ["cni0", "lxc*"],
    "egress_overlay_interfaces": ["flannel.1", "cilium_vxlan", "cilium_host"],
}
ALONE = {
    "site_cni": "cilium",
    "site_pod_cidr": "10.245.0.0/16",
    "cilium_tunnel_port": 8473,
    "egress_pod_interfaces": ["lxc*"],
    "egress_overlay_interfaces": ["cilium_vxlan"],
}
SERVE = "mkdir -p /tmp/www && echo well >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"
KNOCK = "while :; do for at in {}; do wget -T 1 -q -O /dev/null http://$at/; done; sleep 1; done & "
ASKING = """
import pathlib, sys, time, urllib.request
place, folder = sys.argv[1], pathlib.Path(sys.argv[2])
asked, lost = 0, []
while not (folder / "stop").exists():
    began = time.time()
    try:
        with urllib.request.urlopen(place, timeout=5) as answer:
            answer.read()
    except OSError as error:
        lost.append(f"{began:.1f} {error}")
    asked += 1
    text = chr(10).join([str(asked), *lost])
    (folder / "new").write_text(text)
    (folder / "new").rename(folder / "counted")
    time.sleep(0.1)
"""
"""Every request is a connection of its own."""


class Moving(Cluster):
    """The cluster, and the variables of the moment."""

    variables: t.ClassVar[dict[str, t.Any]] = {}

    @functools.cached_property
    def outside(self) -> list[str]:
        """Return this machine's addresses, one a side."""
        current = state.load(self.lab.name)
        assert current is not None
        return [str(side.controller) for side in current.layout.sites]

    @functools.cached_property
    def targets(self) -> dict[str, Target]:
        """Return what this machine listens on: a port that pods may reach, and one that they may not."""
        return {name: Target(self.outside[-1]) for name in ("opened", "closed")}

    def settings(self, **more: t.Any) -> dict[str, t.Any]:
        """Return all variables: those of the moment, and of the egress tables."""
        entry = {
            "destination": self.outside[-1],
            "ports": [self.targets["opened"].port],
            "owner": "tests",
            "reason": "what pods may reach",
            "expires": time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * 86_400)),
        }
        egress = {"egress_enabled": True, "egress_allow": [entry], "egress_resolvers": self.outside}
        return {**egress, **self.variables, **more}

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        return super().site("-e", json.dumps(self.settings()), *options)

    def migrate(self, **more: t.Any) -> Played:
        """Run cni_migrate.yml."""
        return play("cni_migrate", self.inventory, self.folder, "-e", json.dumps(self.settings(**more)))

    def admin(self, command: str, check: bool = True) -> str:
        """Run kubectl as administrator."""
        return self.on("az-1", f"kubectl --kubeconfig /etc/kubernetes/admin.conf {command}", check)

    def apply(self, *items: dict[str, t.Any]) -> None:
        """Make objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.on(
            "az-1", f"echo {shlex.quote(text)} | kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -"
        )

    def addresses(self) -> dict[str, set[str]]:
        """Return the beginnings of the addresses of pods in the pod network: node -> those."""
        found: dict[str, set[str]] = {}
        for pod in self.kubectl("get", "pods", "-A")["items"]:
            if not pod["spec"].get("hostNetwork") and pod["status"].get("phase") == "Running":
                beginning = pod["status"]["podIP"][: len(BEFORE)]
                found.setdefault(pod["spec"]["nodeName"], set()).add(beginning)
        return found

    def reached(self, place: Target) -> dict[str, bool]:
        """Tell whether the pod on each host reaches something outside the cluster."""
        pods = self.kubectl("get", "pods", "-l", "app=logs")["items"]
        return {
            pod["spec"]["nodeName"]: "reached"
            in self.admin(
                f"exec {pod['metadata']['name']} -- "
                f"sh -c 'wget -T 3 -q -O /dev/null http://{place.place}/ && echo reached'",
                check=False,
            )
            for pod in pods
        }

    def is_confined(self) -> None:
        """See that the egress tables let pods through to what is listed, and never let anything else out."""
        until(lambda: self.reached(self.targets["opened"]) == dict.fromkeys(HOSTS, True), 60, 1)
        assert self.reached(self.targets["closed"]) == dict.fromkeys(HOSTS, False)
        assert self.targets["closed"].seen == []

    def lost(self) -> dict[str, list[str]]:
        """Return the requests that were not answered, by the host that asked; every host has asked."""
        found = {}
        for host in HOSTS:
            count, *lost = self.on(host, "cat /run/asking/counted").splitlines()
            print(f"{host}: {count} requests, {len(lost)} lost")
            assert int(count) > 0
            found[host] = lost
        return {host: lost for host, lost in found.items() if lost}


def workload(knock: str) -> list[dict[str, t.Any]]:
    """Return two replicas on two workers, their budget and service, and a pod that knocks on every node."""
    labels = {"app": "web"}
    container = {
        "name": "main",
        "image": "docker.io/library/busybox:1.37.0",
        "command": ["/bin/sh", "-c", SERVE],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        # Who is told to end still answers those who have not heard of it.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "10"]}}},
    }
    apart = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": labels},
                        "topologyKey": "kubernetes.io/hostname",
                    },
                }
            ]
        }
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 30}
    knocking = {**spec, "containers": [{**container, "command": ["/bin/sh", "-c", knock + SERVE]}]}
    own = {
        "metadata": {"labels": {"app": "logs"}},
        "spec": {**knocking, "tolerations": [{"operator": "Exists"}]},
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {**spec, "affinity": apart}},
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "logs", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "logs"}}, "template": own},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]


@pytest.fixture(scope="module")
def moving() -> Iterator[Moving]:
    """A cluster with flannel, whose workload is asked from every host."""
    held = index.load(cache.Cache().index_path).images
    if missing := [image for image in IMAGES if image not in held]:
        pytest.skip(f"the mirror lacks {', '.join(missing)}: ironspan artifacts build --set cilium")
    with lab_cluster(Moving, "movelab", azure=1, rack=2, azure_services=False) as made:
        assert made.first is not None and made.first.status == 0, made.first and made.first.output
        made.apply(*workload(KNOCK.format(" ".join(each.place for each in made.targets.values()))))
        made.admin("rollout status --timeout=300s deployment/web")
        made.admin("rollout status --timeout=300s daemonset/logs")
        address = made.kubectl("get", "service", "web")["spec"]["clusterIP"]
        for host in HOSTS:
            made.on(host, f"mkdir -p /run/asking; cat >/run/asking/ask.py <<'END'\n{ASKING}\nEND")
            made.on(
                host,
                "systemd-run --unit asking --collect python3 /run/asking/ask.py "
                f"http://{address}/ /run/asking",
            )
        until(lambda: all(made.on(host, "cat /run/asking/counted", check=False) for host in HOSTS), 60, 1)
        made.is_confined()
        yield made
        for target in made.targets.values():
            target.close()


def test_cilium_comes_beside_flannel_and_pods_notice_nothing(moving: Moving) -> None:
    Moving.variables = MOVING
    played = moving.site()
    assert played.status == 0, played.output
    agents = moving.kubectl("-n", "kube-system", "get", "daemonset", "cilium")["status"]
    assert agents["numberAvailable"] == len(HOSTS), "site.yml waits for agents"
    assert moving.addresses() == {host: {BEFORE} for host in HOSTS}
    moving.is_confined()
    assert moving.lost() == {}


def test_one_worker_moves(moving: Moving) -> None:
    played = moving.migrate(ironspan_hosts="rack-1")
    assert played.status == 0, played.output
    assert moving.addresses()["rack-1"] == {AFTER}
    assert moving.addresses()["rack-2"] == {BEFORE}
    moving.is_confined()
    assert moving.lost() == {}


def test_it_goes_back(moving: Moving) -> None:
    played = moving.migrate(ironspan_hosts="rack-1", ironspan_pod_network="flannel")
    assert played.status == 0, played.output
    assert moving.addresses()["rack-1"] == {BEFORE}
    moving.is_confined()
    assert moving.lost() == {}


def test_the_last_stage_waits_for_the_last_node(moving: Moving) -> None:
    played = moving.migrate(ironspan_pod_network="cilium-only", ironspan_allow_destructive=True)
    assert played.status != 0 and "is not moved" in played.output


def test_all_nodes_move(moving: Moving) -> None:
    played = moving.migrate()
    assert played.status == 0, played.output
    assert moving.addresses() == {host: {AFTER} for host in HOSTS}
    labels = {node["metadata"]["labels"].get(LABEL) for node in moving.kubectl("get", "nodes")["items"]}
    assert labels == {MOVED}
    moving.is_confined()
    assert moving.lost() == {}


def test_the_last_stage_killed_in_its_middle_is_finished_by_the_next_run(moving: Moving) -> None:
    asked = moving.settings(ironspan_pod_network="cilium-only", ironspan_allow_destructive=True)
    playbook = str(ROOT / "playbooks" / "cni_migrate.yml")
    running = subprocess.Popen(
        [str(BIN / "ansible-playbook"), "-i", str(moving.inventory), "-e", json.dumps(asked), playbook],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    config = "-n kube-system get configmap cilium-config -o jsonpath={.data.enable-policy}"
    until(lambda: moving.admin(config) != "never" or running.poll() is not None, 300, 1)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(30)
    assert moving.admin(config) != "never"
    played = moving.migrate(ironspan_pod_network="cilium-only", ironspan_allow_destructive=True)
    assert played.status == 0, played.output
    sets = moving.kubectl("get", "daemonsets", "-A")["items"]
    assert {each["metadata"]["name"] for each in sets} == {"cilium", "logs"}
    for host in HOSTS:
        assert moving.on(host, "ls /etc/cni/net.d") == "05-cilium.conflist"
        links = moving.on(host, "ip -o link")
        assert "flannel." not in links and "cni0" not in links
    moving.is_confined()
    assert moving.lost() == {}


def test_the_inventory_of_before_is_refused_and_that_of_after_is_the_truth(moving: Moving) -> None:
    refused = moving.site()
    assert refused.status != 0 and "write cilium" in refused.output
    Moving.variables = ALONE
    played = moving.site()
    assert played.status == 0, played.output
    again = moving.site()
    assert again.status == 0 and again.changed == {}, again.output
    moving.is_confined()
    assert moving.lost() == {}


def test_policies_are_enforced(moving: Moving) -> None:
    denial = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": "default"},
        "spec": {"podSelector": {"matchLabels": {"app": "logs"}}, "policyTypes": ["Ingress"]},
    }
    pods = moving.kubectl("get", "pods", "-l", "app=logs")["items"]
    address = next(pod["status"]["podIP"] for pod in pods if pod["spec"]["nodeName"] == "rack-1")
    client = next(pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == "rack-2")
    knock = f"exec {client} -- wget -T 3 -q -O - http://{address}:8080/"
    until(lambda: "well" in moving.admin(knock, check=False), 60, 1)
    moving.apply(denial)
    until(lambda: "well" not in moving.admin(knock, check=False), 60, 1)
    for host in HOSTS:
        moving.on(host, "touch /run/asking/stop")
    moving.is_confined()
    assert moving.lost() == {}
