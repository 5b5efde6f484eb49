# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster of the lab whose workers look as if they had GPUs.

The driver's library is a stand-in (tests/support/nvml), and so is the device: a character device to which
opening does nothing. Needs ``ironspan artifacts build --set gpu``.
"""

from __future__ import annotations

import base64
import datetime
import json
import shlex
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence

import yaml

from ironspan.gpu_repair import model
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
WELL, LOG, CUDA = "/var/lib/gpus/well", "/var/lib/gpus/kmsg", "/var/lib/gpus/cuda"
"""Files of a host whose boots load the driver: GPUs as a boot makes them, the kernel's log, CUDA."""
FEW = b"mma 2\nsms 1\n"
"""Of CUDA: products that take long by the clock of the stand-in are few, for this machine makes them."""
READY = "ready"
UNIT = f"""\
[Unit]
Before={DESCRIBED}.service {PLUGIN}.service ironspan-gpud.service kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /var/lib/gpus/load
[Install]
WantedBy=multi-user.target
"""


class Gpus(Cluster):
    """The cluster, with workers that have GPUs."""

    state: nvml.State
    ON: t.ClassVar[dict[str, t.Any]] = ON

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        more = self.folder / "gpu.yml"
        more.write_text(yaml.safe_dump({"all": {"children": {"gpu": {"hosts": {HOST: None}}}}}))
        return super().site("-i", str(more), "-e", json.dumps(self.ON), *options)

    def put(self, path: str, content: bytes, host: str = HOST) -> None:
        """Write a file of a host, as a whole."""
        text = base64.b64encode(content).decode()
        for start in range(0, len(text), 60_000):
            self.on(host, f"echo {text[start : start + 60_000]} {'>>' if start else '>'} {path}.b64")
        self.on(host, f"base64 -d {path}.b64 >{path}.new && rm {path}.b64 && mv {path}.new {path}")

    def load_driver(self) -> None:
        """Have the host look as if a driver were loaded."""
        version = self.state.driver
        library = f"{LIBRARIES}/libnvidia-ml.so"
        self.put(f"{library}.{version}", nvml.built(self.folder / "nvml", STATE).read_bytes())
        self.show()
        restart = f"systemctl restart {DESCRIBED} || {{ journalctl -u {DESCRIBED} -n 20; exit 1; }}"
        self.on(HOST, f"ln -sf {library}.{version} {library}.1; ldconfig")
        self.on(HOST, "\n".join([*self.loading(version), restart]))

    def loading(self, version: str) -> list[str]:
        """Return the lines of a shell that make what a loaded driver has: devices and its version.

        Args:
            version: of the driver; a variable of the shell may stand for it.
        """
        loaded = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"
        major, minor = DEVICE.split(":")
        # nvidia-ctk asks which majors the driver has.
        majors = r"sed '1a 195 nvidia\n195 nvidiactl\n510 nvidia-uvm' /proc/devices >/run/devices"
        return [
            "set -e",
            *(f"mknod -m 666 /dev/nvidia{number} c {major} {minor}" for number in range(self.state.gpus)),
            "mount -t tmpfs none /proc/driver",
            "mkdir /proc/driver/nvidia",
            f'echo "{loaded}" >/proc/driver/nvidia/version',
            majors,
            "mount --bind /run/devices /proc/devices",
        ]

    def load_at_boot(self, host: str, version: str, before: Sequence[str] = ()) -> None:
        """Have each boot of a host load the driver, with GPUs that are well and an empty kernel's log.

        Args:
            host: its name; the unit does not begin before the next boot.
            version: as ``loading`` takes it.
            before: further lines of the shell, which come first.
        """
        self.on(host, "mkdir -p /var/lib/gpus")
        lines = [
            *before,
            f'sed "s/{self.state.driver}/{version}/" {WELL} >{STATE}.boot && mv {STATE}.boot {STATE}',
            f": >{LOG}",
            "[ -e /dev/kmsg ] || : >/dev/kmsg",
            f"mount --bind {LOG} /dev/kmsg",
            *self.loading(version),
        ]
        self.put(WELL, self.state.path.read_bytes(), host)
        self.put("/var/lib/gpus/load", "\n".join([*lines, ""]).encode(), host)
        self.put("/etc/systemd/system/gpu-stand-in.service", UNIT.encode(), host)
        self.on(host, "systemctl enable gpu-stand-in.service")

    def show(self) -> None:
        """Let the host see what the GPUs are now."""
        self.put(STATE, self.state.path.read_bytes())

    def node(self, host: str = HOST) -> dict[str, t.Any]:
        """Return the Node of a host."""
        return self.kubectl("get", "node", host)

    def is_open(self, host: str = HOST) -> bool:
        """Say whether a Node is ready and takes pods with GPUs."""
        node = self.node(host)
        keys = {taint["key"] for taint in node["spec"].get("taints", ())}
        ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
        return (
            ready == ["True"]
            and not node["spec"].get("unschedulable")
            and not keys & {model.REPAIR_TAINT, model.PREFLIGHT_TAINT}
            and said(node, model.RECORD).get("state") == READY
        )

    def gpus(self, host: str = HOST) -> tuple[int, int]:
        """Return how many GPUs a kubelet has, and how many it gives to pods."""
        status = self.node(host)["status"]
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
        self.apply(pod)
        self.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=170s pod/{name}")

    def work(self, replicas: int) -> None:
        """Want so many pods with a GPU."""
        container = {
            "name": "main",
            "image": "docker.io/library/busybox:1.37.0",
            "command": ["sleep", "86400"],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
        labels = {"app": "work"}
        pod = {"terminationGracePeriodSeconds": 0, "containers": [container]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "work"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
        self.apply(deployment)

    def apply(self, item: Mapping[str, t.Any]) -> None:
        """Apply an object."""
        self.on("az-1", f"echo {shlex.quote(json.dumps(item))} | {KUBECTL} apply -f -")

    def inside(self, name: str, command: str) -> str:
        """Run a command in a pod; return what it said, errors too."""
        return self.on("az-1", f"{KUBECTL} exec {name} -- sh -c {shlex.quote(command)} 2>&1", check=False)


def said(node: Mapping[str, t.Any], annotation: str) -> t.Any:
    """Return what an annotation says."""
    return json.loads(node["metadata"].get("annotations", {}).get(annotation, "{}"))


def moment(text: str) -> float:
    """Return a time of Kubernetes, in seconds since 1970."""
    return datetime.datetime.fromisoformat(text).timestamp()


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
