# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster of the lab whose worker looks as if it had GPUs.

The driver's library is a stand-in (tests/support/nvml), and so is the device: a character device to which
opening does nothing. Needs ``ironspan artifacts build --set gpu``.
"""

from __future__ import annotations

import base64
import json
import shlex
import time
import typing as t
from collections.abc import Callable

import yaml

from tests.integration.conftest import Cluster
from tests.support import nvml
from tests.support.playbooks import Played

HOST = "rack-1"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
STATE = "/run/ironspan-gpus"
DEVICE = "10:237"
"""/dev/loop-control, which containers may not use unless they are given it."""
PLUGIN, DESCRIBED = "ironspan-nvidia-device-plugin", "ironspan-nvidia-cdi"
ON: dict[str, t.Any] = {
    "nvidia_toolkit_enabled": True,
    "nvidia_device_plugin_enabled": True,
    "node_kubelet_topology_manager_policy": "best-effort",
    "node_kubelet_topology_manager_scope": "pod",
}
PATIENCE_S = 120.0


class Gpus(Cluster):
    """The cluster, with a worker that has GPUs."""

    state: nvml.State
    ON: t.ClassVar[dict[str, t.Any]] = ON

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        more = self.folder / "gpu.yml"
        more.write_text(yaml.safe_dump({"all": {"children": {"gpu": {"hosts": {HOST: None}}}}}))
        return super().site("-i", str(more), "-e", json.dumps(self.ON), *options)

    def put(self, path: str, content: bytes) -> None:
        """Write a file of the host, as a whole."""
        text = base64.b64encode(content).decode()
        for start in range(0, len(text), 60_000):
            self.on(HOST, f"echo {text[start : start + 60_000]} {'>>' if start else '>'} {path}.b64")
        self.on(HOST, f"base64 -d {path}.b64 >{path}.new && rm {path}.b64 && mv {path}.new {path}")

    def load_driver(self) -> None:
        """Have the host look as if a driver were loaded."""
        version = self.state.driver
        library = f"{LIBRARIES}/libnvidia-ml.so"
        self.put(f"{library}.{version}", nvml.built(self.folder / "nvml", STATE).read_bytes())
        self.show()
        restart = f"systemctl restart {DESCRIBED} || {{ journalctl -u {DESCRIBED} -n 20; exit 1; }}"
        self.on(HOST, f"ln -sf {library}.{version} {library}.1; ldconfig")
        self.on(HOST, "\n".join([*self.loading(), restart]))

    def loading(self) -> list[str]:
        """Return the lines of a shell that make what a loaded driver has: devices and its version."""
        module = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64"
        loaded = f"{module}  {self.state.driver}  Release Build"
        major, minor = DEVICE.split(":")
        # nvidia-ctk asks which majors the driver has.
        majors = r"sed '1a 195 nvidia\n195 nvidiactl\n510 nvidia-uvm' /proc/devices >/run/devices"
        return [
            "set -e",
            *(f"mknod -m 666 /dev/nvidia{number} c {major} {minor}" for number in range(self.state.gpus)),
            "mount -t tmpfs none /proc/driver",
            "mkdir /proc/driver/nvidia",
            f"echo {shlex.quote(loaded)} >/proc/driver/nvidia/version",
            majors,
            "mount --bind /run/devices /proc/devices",
        ]

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


def until(what: Callable[[], t.Any], wanted: t.Any, patience_s: float = PATIENCE_S) -> None:
    """Wait until something is as wanted."""
    end = time.monotonic() + patience_s
    while (found := what()) != wanted:
        assert time.monotonic() < end, found
        time.sleep(1)


def openable(site: Gpus, pod: str) -> list[str]:
    """Return the GPUs that a pod can open."""
    script = "for d in /dev/nvidia[0-9]*; do (exec 3<$d) && echo $d; done"
    return sorted(line for line in site.inside(pod, script).splitlines() if line.startswith("/dev/"))
