# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer egress on a small cluster: runc and gVisor pods, both sides of the WAN, a reboot, on and off.

What each kind of packet may do is proven in test_egress_packets.py; here the table stands beside the real
kube-proxy, flannel and gVisor, and hosts boot with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import Played

pytestmark = [pytest.mark.lab, pytest.mark.long]

KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
PODS = {"runc-rack": ("rack-1", "runc"), "gvisor-rack": ("rack-1", "gvisor"), "runc-az": ("az-1", "runc")}
TABLE = "nft list table inet ironspan-egress"
PROBE = """\
for target in {targets}; do
  said=$(wget -T 3 -O /dev/null http://$target/ 2>&1)
  case "$said" in
    *"timed out"*|*"can't connect"*) echo "$target dropped" ;;
    *) echo "$target passes" ;;
  esac
done
"""
"""Any answer is one: that of a server that speaks another protocol too."""
SERVE = "mkdir -p /tmp/www && exec httpd -f -p 8080 -h /tmp/www"


class Site:
    """The cluster, and where its pods knock."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # The machine itself on each side: no host of the inventory, with a mirror that answers.
        text = cluster.inventory.read_text()
        self.mirrors = dict(
            zip(
                ("azure", "on_prem"), re.findall(r"site_mirror_url: http://([0-9.]+):8080", text), strict=True
            )
        )

    def run(self, enabled: bool, *options: str) -> Played:
        """Run site.yml with the layer on or off."""
        last_day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * 86_400))
        entry = {
            "destination": self.mirrors["on_prem"],
            "ports": [8080],
            "owner": "tests",
            "reason": "the mirror on the racks' side",
            "expires": last_day,
        }
        variables = {
            "egress_enabled": enabled,
            "egress_allow": [entry],
            "egress_resolvers": list(self.mirrors.values()),
        }
        return self.cluster.site("-e", json.dumps(variables), *options)

    def start(self, name: str, node: str, runtime: str, command: str = SERVE) -> None:
        """Start a pod on a node."""
        container = {
            "name": "main",
            "image": "docker.io/library/busybox:1.37.0",
            "command": ["/bin/sh", "-c", command],
        }
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **({"runtimeClassName": "gvisor"} if runtime == "gvisor" else {}),
        }
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.on("az-1", f"echo {shlex.quote(json.dumps(made))} | {KUBECTL} apply -f -")

    def wait(self, *names: str) -> None:
        """Wait until pods are ready."""
        pods = " ".join(f"pod/{name}" for name in names)
        self.cluster.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=150s {pods}")

    def addresses(self) -> dict[str, str]:
        """Return the pods' addresses by name."""
        items = self.cluster.kubectl("get", "pods")["items"]
        return {item["metadata"]["name"]: item["status"].get("podIP", "") for item in items}

    def targets(self) -> dict[str, str]:
        """Return where pods knock: target -> what becomes of it with the layer on."""
        bridge = self.cluster.on("rack-1", "ip -4 -o address show dev cni0").split()[3].split("/")[0]
        return {
            **{f"{address}:8080": "passes" for address in self.addresses().values()},
            "10.96.0.1:443": "passes",
            f"{self.cluster.address('az-1')}:6443": "passes",
            f"{self.mirrors['on_prem']}:8080": "passes",
            f"{self.mirrors['azure']}:8080": "dropped",
            f"{self.cluster.address('az-1')}:22": "dropped",
            f"{self.cluster.address('rack-1')}:22": "dropped",
            f"{self.cluster.address('az-1')}:10250": "dropped",
            f"{bridge}:22": "dropped",
        }

    def knock(self, pod: str, targets: t.Iterable[str]) -> dict[str, str]:
        """Return what became of every target, seen from inside a pod."""
        script = PROBE.format(targets=" ".join(targets))
        said = self.cluster.on("az-1", f"{KUBECTL} exec {pod} -- sh -c {shlex.quote(script)}")
        return dict(t.cast("tuple[str, str]", tuple(line.split())) for line in said.splitlines())

    def resolves(self, pod: str, name: str) -> bool:
        """Tell whether a name resolves in a pod."""
        return "Address" in self.cluster.on(
            "az-1", f"{KUBECTL} exec {pod} -- nslookup -type=a {name} | tail -n +4", check=False
        )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A cluster of two hosts without the layer, and pods on both."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    made = Cluster(Lab(lab_name("egress")), pathlib.Path(tempfile.mkdtemp(prefix="ise-", dir="/tmp")))
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        made.first = made.site()
        assert made.first.status == 0, made.first.output
        site = Site(made)
        for name, (node, runtime) in PODS.items():
            site.start(name, node, runtime)
        site.wait(*PODS)
        yield site
    finally:
        made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_without_the_layer_pods_reach_everything(site: Site) -> None:
    targets = site.targets()
    for pod in PODS:
        assert site.knock(pod, targets) == dict.fromkeys(targets, "passes"), pod


def test_pods_reach_the_cluster_and_the_allow_list(site: Site) -> None:
    played = site.run(True)
    assert played.status == 0, played.output
    assert set(played.changed) >= {"az-1", "rack-1"}
    targets = site.targets()
    for pod in PODS:
        assert site.knock(pod, targets) == targets, pod
        assert site.resolves(pod, "kubernetes.default.svc.cluster.local."), pod
        assert site.resolves(pod, "api.lab.internal."), pod
    counters = site.cluster.on("rack-1", "nft list counters table inet ironspan-egress")
    assert all(
        int(re.findall(rf"counter {name} {{\s+packets (\d+)", counters)[0]) for name in ("host", "outside")
    )


def test_the_second_run_changes_nothing(site: Site) -> None:
    played = site.run(True)
    assert played.status == 0, played.output
    assert played.changed == {}, played.output


def test_coredns_is_on_both_hosts(site: Site) -> None:
    """All of it was started on one, before the other was there."""
    site.cluster.on("az-1", f"{KUBECTL} -n kube-system rollout status deployment/coredns --timeout=120s")
    pods = site.cluster.kubectl("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns")["items"]
    ready = [item for item in pods if item["status"]["phase"] == "Running"]
    assert {item["spec"]["nodeName"] for item in ready} == {"az-1", "rack-1"}


LISTEN = """\
import socket
with socket.create_server(("", 5000)) as server, open("/run/knocked", "w") as log:
    while True:
        connection, peer = server.accept()
        connection.close()
        print(peer[0], file=log, flush=True)
"""


def test_an_images_name_makes_no_host_connect_elsewhere(site: Site) -> None:
    """A registry outside of the mirror: a host reaches it, containerd does not try."""
    on, registry = site.cluster.on, f"{site.cluster.address('az-1')}:5000"
    on("az-1", f"systemd-run --unit=listener python3 -c {shlex.quote(LISTEN)}")
    knock = f"import socket; socket.create_connection(('{site.cluster.address('az-1')}', 5000), 5)"
    until = time.monotonic() + 30
    while not on("az-1", "cat /run/knocked", check=False):
        assert time.monotonic() < until, "the listener does not listen"
        on("rack-1", f"python3 -c {shlex.quote(knock)}", check=False)
    before = on("az-1", "wc -l < /run/knocked")
    made: dict[str, t.Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}}
    made["spec"] = {"nodeName": "rack-1", "containers": [{"name": "a", "image": f"{registry}/a/b:1"}]}
    on("az-1", f"echo {shlex.quote(json.dumps(made))} | {KUBECTL} apply -f -")
    until, said = time.monotonic() + 90, ""
    while "not found" not in said:
        assert time.monotonic() < until, said
        (state,) = site.cluster.kubectl("get", "pod", "foreign")["status"].get("containerStatuses") or [{}]
        said += str(state.get("state", {}).get("waiting", {}).get("message", ""))
    assert on("az-1", "wc -l < /run/knocked") == before
    on("az-1", f"systemctl stop listener; {KUBECTL} delete pod foreign --grace-period=0 --force")


def test_a_service_does_not_take_a_hosts_address(site: Site) -> None:
    """Without a policy file: somebody with the role edit asks for the address of the hosts' mirror."""
    on = site.cluster.on
    on("az-1", f"{KUBECTL} create rolebinding somebody --clusterrole=edit --user=somebody")
    address = site.mirrors["on_prem"]
    spec = {"ports": [{"port": 8080}], "externalIPs": [address]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hijack"}, "spec": spec}
    make = f"echo {shlex.quote(json.dumps(service))} | {KUBECTL} --as=somebody apply -f - 2>&1"
    assert "(rule service_addresses)" in on("az-1", make, check=False)
    assert "200" in on("rack-1", f"curl -s -o /dev/null -w '%{{http_code}}' http://{address}:8080/v2/")


@pytest.mark.parametrize("runtime", ["runc", "gvisor"])
def test_a_pod_is_judged_from_its_first_packet(site: Site, runtime: str) -> None:
    name = f"first-{runtime}"
    targets = {f"{site.mirrors['azure']}:8080": "dropped", f"{site.mirrors['on_prem']}:8080": "passes"}
    probe = PROBE.format(targets=" ".join(targets))
    site.start(name, "rack-1", runtime, f"{probe}\nexec sleep 1000")
    site.wait(name)
    until = time.monotonic() + 60
    said = ""
    while len(said.splitlines()) < 2:
        assert time.monotonic() < until, said
        said = site.cluster.on("az-1", f"{KUBECTL} logs {name}", check=False)
    assert dict(line.split() for line in said.splitlines()) == targets
    site.cluster.on("az-1", f"{KUBECTL} delete pod {name}")


def test_a_restart_and_a_stop_by_mistake_open_nothing(site: Site) -> None:
    for verb in ("restart", "stop", "start", "reload"):
        site.cluster.on("rack-1", f"systemctl {verb} ironspan-egress && {TABLE} >/dev/null")


def test_a_deleted_table_is_seen_and_comes_back(site: Site) -> None:
    site.cluster.on("rack-1", "systemctl stop ironspan-egress-watch.timer")
    site.cluster.on("rack-1", "nft delete table inet ironspan-egress")
    said = site.cluster.command(
        "doctor", "-i", str(site.cluster.inventory), "-e", "egress_enabled=true", "--plain"
    ).stdout
    assert "rack-1: the table ironspan-egress is not loaded" in said, said
    assert "az-1: the table" not in said, said
    site.cluster.on("rack-1", "systemctl start ironspan-egress-watch.timer")
    site.cluster.on(
        "rack-1", f"for _ in $(seq 100); do {TABLE} >/dev/null 2>&1 && exit 0; sleep 1; done; exit 1"
    )


def test_no_kubelet_without_the_table(site: Site) -> None:
    on = site.cluster.on
    on("rack-1", "mv /etc/ironspan-egress.nft /root/kept && nft delete table inet ironspan-egress")
    try:
        assert "control process" in on("rack-1", "systemctl restart kubelet 2>&1 || true")
        assert on("rack-1", "systemctl is-active kubelet", check=False) != "active"
    finally:
        on("rack-1", "mv /root/kept /etc/ironspan-egress.nft && systemctl reload ironspan-egress")
    on("rack-1", "for _ in $(seq 60); do systemctl is-active -q kubelet && exit 0; sleep 1; done; exit 1")


def test_after_a_boot_the_table_is_there_before_the_kubelet(site: Site) -> None:
    on = site.cluster.on
    before = on("rack-1", "cat /proc/1/stat | cut -d' ' -f22")
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        on("rack-1", "systemctl reboot")
    until = time.monotonic() + 120
    while on("rack-1", "cat /proc/1/stat | cut -d' ' -f22", check=False) in ("", before):
        assert time.monotonic() < until
        time.sleep(1)
    on("rack-1", "for _ in $(seq 60); do systemctl is-active -q kubelet && exit 0; sleep 1; done; exit 1")
    started = {
        unit: int(on("rack-1", f"systemctl show {unit} -p ActiveEnterTimestampMonotonic --value"))
        for unit in ("ironspan-egress", "containerd", "kubelet")
    }
    assert 0 < started["ironspan-egress"] < min(started["containerd"], started["kubelet"]), started
    # New pods, as the API takes those of before the boot for ready until the kubelet has told it otherwise.
    for name in ("runc-rack", "gvisor-rack"):
        on("az-1", f"{KUBECTL} delete pod {name} --grace-period=0 --force")
        site.start(name, *PODS[name])
    site.wait("runc-rack", "gvisor-rack")
    targets = site.targets()
    assert site.knock("gvisor-rack", targets) == targets


def test_off_again_everything_is_gone(site: Site) -> None:
    played = site.run(False)
    assert played.status == 0, played.output
    for host in ("az-1", "rack-1"):
        assert "ironspan" not in site.cluster.on(host, "nft list tables")
        assert site.cluster.on(host, "find /etc -name '*ironspan-egress*'") == ""
    targets = site.targets()
    assert site.knock("runc-rack", targets) == dict.fromkeys(targets, "passes")
    again = site.run(False)
    assert again.changed == {}, again.output
