# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From the driver's library to pods: the real device plugin, nvidia-ctk, containerd and kubelet.

The library is a stand-in (tests/support/nvml), and so is the device: a character device to which opening does
nothing. Needs ``ironspan artifacts build --set gpu``.
"""

from __future__ import annotations

import base64
import json
import shlex
import time
import typing as t
from collections.abc import Callable, Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from tests.integration.conftest import Cluster, lab_cluster
from tests.support import nvml
from tests.support.playbooks import Played

pytestmark = [pytest.mark.lab, pytest.mark.long]

HOST = "rack-1"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
STATE = "/run/ironspan-gpus"
DEVICE = "10:237"
"""/dev/loop-control, which containers may not use unless they are given it."""
PLUGIN, DESCRIBED = "ironspan-nvidia-device-plugin", "ironspan-nvidia-cdi"
ON = {
    "nvidia_toolkit_enabled": True,
    "nvidia_device_plugin_enabled": True,
    "node_kubelet_topology_manager_policy": "best-effort",
    "node_kubelet_topology_manager_scope": "pod",
}
GPUS = 8
PATIENCE_S = 120.0


class Gpus(Cluster):
    """The cluster, with a worker that has GPUs."""

    state: nvml.State

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        more = self.folder / "gpu.yml"
        more.write_text(yaml.safe_dump({"all": {"children": {"gpu": {"hosts": {HOST: None}}}}}))
        return super().site("-i", str(more), "-e", json.dumps(ON), *options)

    def put(self, path: str, content: bytes) -> None:
        """Write a file of the host, as a whole."""
        text = base64.b64encode(content).decode()
        for start in range(0, len(text), 60_000):
            self.on(HOST, f"echo {text[start : start + 60_000]} {'>>' if start else '>'} {path}.b64")
        self.on(HOST, f"base64 -d {path}.b64 >{path}.new && rm {path}.b64 && mv {path}.new {path}")

    def load_driver(self) -> None:
        """Have the host look as if a driver were loaded."""
        version = next(
            line for line in self.state.path.read_text().splitlines() if line.startswith("driver ")
        )
        version = version.removeprefix("driver ")
        library = f"{LIBRARIES}/libnvidia-ml.so"
        self.put(f"{library}.{version}", nvml.built(self.folder / "nvml", STATE).read_bytes())
        self.show()
        loaded = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"
        major, minor = DEVICE.split(":")
        nodes = [f"mknod -m 666 /dev/nvidia{number} c {major} {minor}" for number in range(GPUS)]
        # nvidia-ctk asks which majors the driver has.
        majors = r"sed '1a 195 nvidia\n195 nvidiactl\n510 nvidia-uvm' /proc/devices >/run/devices"
        steps = [
            f"ln -sf {library}.{version} {library}.1",
            "ldconfig",
            *nodes,
            "mount -t tmpfs none /proc/driver",
            "mkdir /proc/driver/nvidia",
            f"echo {shlex.quote(loaded)} >/proc/driver/nvidia/version",
            majors,
            "mount --bind /run/devices /proc/devices",
            f"systemctl restart {DESCRIBED} || {{ journalctl -u {DESCRIBED} -n 20; exit 1; }}",
        ]
        self.on(HOST, f"set -e; {'; '.join(steps)}")

    def show(self) -> None:
        """Let the host see what the GPUs are now."""
        self.put(STATE, self.state.path.read_bytes())

    def gpus(self) -> tuple[int, int]:
        """Return how many GPUs the kubelet has, and how many it gives to pods."""
        status = self.kubectl("get", "node", HOST)["status"]
        return tuple(int(status[name].get("nvidia.com/gpu", 0)) for name in ("capacity", "allocatable"))  # type: ignore[return-value]

    def start(self, name: str, gpus: int = 1) -> None:
        """Start a pod with GPUs and wait until it is ready."""
        container = {
            "name": "main",
            "image": "docker.io/library/busybox:1.37.0",
            "command": ["sleep", "3600"],
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }
        spec = {"nodeName": HOST, "terminationGracePeriodSeconds": 0, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.on("az-1", f"echo {shlex.quote(json.dumps(pod))} | {KUBECTL} apply -f -")
        self.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=90s pod/{name}")

    def inside(self, name: str, command: str) -> str:
        """Run a command in a pod; return what it said, errors too."""
        return self.on("az-1", f"{KUBECTL} exec {name} -- sh -c {shlex.quote(command)} 2>&1", check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpus]:
    with lab_cluster(Gpus, "gputest", azure=1, rack=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        made.state = nvml.State(tmp_path_factory.mktemp("gpus") / "state", "h100", GPUS)
        yield made


def until(what: Callable[[], t.Any], wanted: t.Any) -> None:
    """Wait until something is as wanted."""
    end = time.monotonic() + PATIENCE_S
    while (found := what()) != wanted:
        assert time.monotonic() < end, found
        time.sleep(1)


def openable(site: Gpus, pod: str) -> list[str]:
    """Return the GPUs that a pod can open."""
    script = "for d in /dev/nvidia[0-9]*; do (exec 3<$d) && echo $d; done"
    return sorted(line for line in site.inside(pod, script).splitlines() if line.startswith("/dev/"))


def test_without_a_driver_nothing_is_offered_and_nothing_fails(site: Gpus) -> None:
    assert site.gpus() == (0, 0)
    assert site.on(HOST, f"systemctl is-active {PLUGIN} {DESCRIBED}").split() == ["active", "active"]
    site.assert_settled()


def test_the_kubelet_offers_gpus_as_soon_as_there_is_a_driver(site: Gpus) -> None:
    site.load_driver()
    until(site.gpus, (GPUS, GPUS))


def test_a_pod_gets_the_gpu_that_it_asks_for(site: Gpus) -> None:
    site.start("one")
    site.start("two", gpus=2)
    assert len(openable(site, "one")) == 1
    assert len(openable(site, "two")) == 2
    assert not set(openable(site, "one")) & set(openable(site, "two"))
    assert "libnvidia-ml.so" in site.inside("one", "cat /proc/mounts")
    path = f"/api/v1/nodes/{HOST}/proxy/configz"
    kubelet = json.loads(site.on("az-1", f"{KUBECTL} get --raw {path}"))["kubeletconfig"]
    assert (kubelet["topologyManagerPolicy"], kubelet["topologyManagerScope"]) == ("best-effort", "pod")


def test_a_daemon_reload_takes_no_gpu_away(site: Gpus) -> None:
    before = openable(site, "two")
    assert len(before) == 2
    # It is the device cgroup that lets them: what the pod was not given it cannot open.
    assert "not permitted" in site.inside("two", "mknod /tmp/other c 10 234; exec 3</tmp/other")
    link = site.on(HOST, f"readlink /dev/char/{DEVICE}")
    assert link.startswith("../nvidia")
    status = site.kubectl("get", "pod", "two")["status"]["containerStatuses"][0]
    scope = f"cri-containerd-{status['containerID'].removeprefix('containerd://')}.scope"
    # A changed property has systemd apply all of a scope's again.
    again = f"systemctl set-property --runtime {scope} 'DeviceAllow=/dev/null rw'"
    site.on(HOST, f"systemctl daemon-reload; {again}; systemctl daemon-reload")
    assert openable(site, "two") == before


def test_what_is_the_applications_fault_costs_no_gpu_and_what_is_not_does(site: Gpus) -> None:
    policy = shipped()
    harmless = [code for code, rule in policy.xids().items() if rule.action in ("A0", "A1")]
    otherwise = [code for code in harmless if code not in policy.plugin_ignores]
    assert policy.xids()[109].action in ("A2", "A3")
    assert 109 in policy.plugin_ignores
    # The plugin reads events in their order: with the last one withdrawn it has passed over the others.
    for code in otherwise:
        site.state.xid(0, code)
    for gpu, code in ((1, 31), (2, 109), (3, 79)):
        site.state.xid(gpu, code)
    site.show()
    until(site.gpus, (GPUS, GPUS - 2))
    withdrawn = site.on(HOST, f"journalctl -u {PLUGIN} -o cat | grep 'marked unhealthy'")
    assert [uuid for uuid in map(site.state.uuid, range(GPUS)) if uuid in withdrawn] == [
        site.state.uuid(2),
        site.state.uuid(3),
    ]
    # A pod that runs goes on.
    assert len(openable(site, "two")) == 2


def test_gpus_come_back_by_a_reload_and_outlive_the_kubelet(site: Gpus) -> None:
    site.on(HOST, f"systemctl reload {PLUGIN}")
    until(site.gpus, (GPUS, GPUS))
    site.on(HOST, "systemctl restart kubelet")
    until(lambda: "Registered" in site.on(HOST, f"journalctl -u {PLUGIN} -o cat -n 20", check=False), True)
    until(site.gpus, (GPUS, GPUS))
    assert len(openable(site, "two")) == 2


def test_a_second_run_changes_nothing(site: Gpus) -> None:
    site.assert_settled()


def test_off_it_is_removed(site: Gpus) -> None:
    played = site.site("-e", json.dumps({"nvidia_device_plugin_enabled": False}))
    assert played.status == 0, played.output[-4000:]
    until(lambda: site.gpus()[1], 0)
    left = site.on(
        HOST, f"ls /usr/local/bin/nvidia-device-plugin /etc/systemd/system/{PLUGIN}.service", check=False
    )
    assert left == ""
    assert len(openable(site, "two")) == 2
