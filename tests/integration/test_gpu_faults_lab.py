# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Eight faults of GPUs in a cluster of the lab: out of service, repaired, and back only when they pass.

Kubelet, containerd, device plugin, agent and repair controller are the real ones, as the roles install them;
the host boots. What stands in for a driver: gpu_lab, and tests/support/cuda for the preflight. A boot and
``nvidia-smi --gpu-reset`` make the GPUs well. Times of the agent and the controller are shortened.
"""

from __future__ import annotations

import json
import shlex
import time
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from ironspan.gpu_repair import model
from tests.integration.conftest import lab_cluster
from tests.integration.gpu_lab import (
    CUDA,
    DESCRIBED,
    FEW,
    HOST,
    KUBECTL,
    LIBRARIES,
    LOG,
    ON,
    READY,
    STATE,
    WELL,
    Gpus,
    moment,
    said,
    until,
)
from tests.support import cuda, nvml

pytestmark = [pytest.mark.lab, pytest.mark.long]
GPUS = 2
PATIENCE_S = 400.0
CORDONED = "node.kubernetes.io/unschedulable"
SUSPECT, DRAINING, RETEST = "suspect", "draining", "retest"
REBOOT = (SUSPECT, DRAINING, "rebooting", RETEST, READY)
RESET = (SUSPECT, DRAINING, "resetting", RETEST, READY)
SMI = f"""\
#!/bin/sh
case "$*" in *--gpu-reset*) cp {WELL} {STATE}.reset && mv {STATE}.reset {STATE} ;; *) exit 6 ;; esac
"""


@dataclass(frozen=True)
class Fault:
    """Something that breaks.

    Args:
        event: as the agent names it.
        way: the states that the node goes through.
        changes: of the GPUs.
        xid: in the kernel's log and NVML's events.
    """

    event: str
    way: tuple[str, ...]
    changes: Mapping[str, object] = field(default_factory=dict)
    xid: int = 0


FAULTS = (
    Fault("xid 79", REBOOT, xid=79),
    Fault("nvml gpu_lost", REBOOT, {"1.fail": 15}),
    # Nobody's repair: a person looks at it. That starts the count of attempts from zero.
    Fault("nvml hw_slowdown", (SUSPECT, DRAINING, "triage", RETEST, READY), {"0.clocks_reasons": "0x8"}),
    Fault("nvml ecc_uncorrected", RESET, {"0.ecc_count.1.0": 3}),
    Fault("nvml remap_pending", RESET, {"1.remapped": "0 1 1 0"}),
    Fault("nvml hung", REBOOT, {"hang.nvmlDeviceGetTemperature": 1}),
    # The third reset within a week would be one too many.
    Fault("nvml nvlink_inactive", REBOOT, {"0.nvlink.3": 0}),
)


class Faulty(Gpus):
    """The cluster, with GPUs that break and are repaired."""

    ON: t.ClassVar[dict[str, t.Any]] = {
        **ON,
        "nvidia_health_enabled": True,
        "nvidia_health_actions_enabled": True,
        "nvidia_health_gpus_count": GPUS,
        "nvidia_health_hang_seconds": 30,
        "nvidia_health_checks": {"H11": {"minutes": 1, "percent": 10, "readings": 3}},
        "gpu_repair_enabled": True,
        # Until there is a driver all GPUs are missing, for which the controller would have the host reboot.
        "gpu_repair_mode": "watch",
        "gpu_repair_tests": ["A01", "A02", "A03", "A04", "A05", "A06", "A07"],
    }

    def load_now(self) -> None:
        """Have each boot of the host load the driver, and load it."""
        driver = self.state.driver
        self.load_at_boot(HOST, driver)
        self.put("/usr/bin/nvidia-smi", SMI.encode())
        self.put(f"{LIBRARIES}/libcuda.so.1", cuda.built(self.folder, CUDA).read_bytes())
        self.put(CUDA, FEW)
        library = f"{LIBRARIES}/libnvidia-ml.so"
        self.put(f"{library}.{driver}", nvml.built(self.folder / "nvml", STATE).read_bytes())
        self.on(HOST, f"ln -sf {library}.{driver} {library}.1; chmod 755 /usr/bin/nvidia-smi; ldconfig")
        self.on(HOST, "systemctl start gpu-stand-in.service || { journalctl -u gpu-stand-in; exit 1; }")
        self.on(HOST, f"systemctl restart {DESCRIBED}")

    def shorten(self) -> None:
        """Let the controller act, after less time, and the agent write more often."""
        began = time.time()
        self.change(HOST, "gpud", {"heartbeat_seconds": 10, "clear_seconds": 5})
        # Until then it was as silent as five minutes allow, which is more than the controller will.
        until(lambda: self.heard() > began, True)
        self.change(
            "az-1", "gpu-repair", {"mode": "repair", "limits": {"settle_seconds": 1, "silent_seconds": 30}}
        )

    def change(self, host: str, program: str, changes: Mapping[str, t.Any]) -> None:
        """Change settings of a program and start it again."""
        path = f"/etc/ironspan/{program}.json"
        found = json.loads(self.on(host, f"cat {path}"))
        for name, value in changes.items():
            found[name] = {**found[name], **value} if isinstance(value, Mapping) else value
        self.on(
            host, f"printf %s {shlex.quote(json.dumps(found))} >{path}; systemctl restart ironspan-{program}"
        )

    def worker(self) -> tuple[str, float]:
        """Return the pod that works, and when it started; empty without one that is ready."""
        for pod in self.kubectl("get", "pods", "-l", "app=work")["items"]:
            ready = [
                each["status"] for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"
            ]
            if ready == ["True"] and "deletionTimestamp" not in pod["metadata"]:
                return pod["metadata"]["uid"], moment(pod["status"]["startTime"])
        return "", 0.0

    def closed(self) -> bool:
        """Say whether the Node takes no pods: it is cordoned, and has the taint of the repair."""
        spec = self.node()["spec"]
        taints = {taint["key"] for taint in spec.get("taints", ())}
        return bool(spec.get("unschedulable")) and taints >= {model.REPAIR_TAINT, CORDONED}

    def heard(self) -> float:
        """Return when the agent wrote last, in seconds since 1970."""
        conditions = self.node()["status"]["conditions"]
        found = [each["lastHeartbeatTime"] for each in conditions if each["type"] == "GPUHealthy"]
        return moment(found[0]) if found else 0.0

    def cordoned(self) -> float:
        """Return when it was cordoned, in seconds since 1970: to a second, as Kubernetes has it."""
        taints = {taint["key"]: taint for taint in self.node()["spec"]["taints"]}
        return moment(taints[CORDONED]["timeAdded"])

    def record(self) -> dict[str, t.Any]:
        """Return the controller's memory of the Node."""
        return dict(said(self.node(), model.RECORD))

    def went(self, since: float) -> tuple[str, ...]:
        """Return the states that the Node went through since a time; the controller keeps the last ones."""
        return tuple(state for at, state, _ in self.record()["history"] if moment(at) >= int(since))

    def events(self) -> list[str]:
        """Return the events that the agent tells of."""
        return [each["event"] for each in said(self.node(), model.EVENTS)]

    def breaks(self, fault: Fault) -> float:
        """Let it happen; return when, in seconds since 1970."""
        self.state.set(fault.changes)
        steps = ["date +%s.%N", f"mv {STATE}.next {STATE}"]
        if fault.xid:
            self.state.xid(0, fault.xid)
            line = f"NVRM: Xid (PCI:{self.state.pci(0).rpartition('.')[0]}): {fault.xid}, pid=1, name=a, b"
            steps.append(f"echo {shlex.quote(line)} >>{LOG}")
        self.put(f"{STATE}.next", self.state.path.read_bytes())
        return float(self.on(HOST, "; ".join(steps)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    with lab_cluster(Faulty, "gpufault", azure=1, rack=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        made.state = nvml.State(tmp_path_factory.mktemp("gpus") / "state", "h100", GPUS)
        made.load_now()
        until(made.events, [])
        made.shorten()
        made.work(1)
        until(made.gpus, (GPUS, GPUS))
        until(lambda: bool(made.worker()[0]), True)
        until(lambda: made.record().get("state"), READY)
        yield made


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.event.replace(" ", "-"))
def test_a_fault_takes_the_node_out_and_a_passed_preflight_brings_it_back(
    site: Faulty, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    boot, (pod, _) = site.node()["status"]["nodeInfo"]["bootID"], site.worker()
    assert site.is_open(), "a fault before left the node out of service"
    began = site.breaks(fault)
    until(lambda: fault.event in site.events(), True)
    until(site.closed, True)
    closed = site.cordoned() - began
    if fault.xid:
        # The device plugin hears of it too, and gives that GPU to nobody.
        until(site.gpus, (GPUS, GPUS - 1))
    if "triage" in fault.way:
        until(lambda: site.record()["state"], "triage", PATIENCE_S)
        site.state.reset()
        site.show()
        until(site.events, [], PATIENCE_S)
        release(site)
    until(site.is_open, True, PATIENCE_S)
    site.state.boot()
    back = time.time() - began
    node = site.node()
    assert site.went(began) == fault.way
    assert (node["status"]["nodeInfo"]["bootID"] != boot) is ("rebooting" in fault.way)
    verdict = said(node, model.PREFLIGHT)
    assert verdict["passed"] is True
    assert verdict["boot"] == node["status"]["nodeInfo"]["bootID"]
    assert moment(verdict["started"]) > began
    until(lambda: bool(site.worker()[0]), True)
    fresh, started = site.worker()
    assert fresh != pod
    assert started >= int(moment(verdict["ended"]))
    until(site.gpus, (GPUS, GPUS))
    with capsys.disabled():
        print(f"\n{fault.event}: cordoned after {max(closed, 0):.0f} s, back after {back:.0f} s")


def release(site: Faulty) -> None:
    """Say as an administrator that the node was looked at."""
    who = json.loads(site.on("az-1", f"{KUBECTL} auth whoami -o json"))["status"]["userInfo"]["username"]
    word = json.dumps({"id": str(time.time_ns()), "reason": "the fan was replaced", "to": "preflight"})
    both = f"{model.RELEASE}={shlex.quote(word)} {model.RELEASED_BY}={shlex.quote(who)}"
    site.on("az-1", f"{KUBECTL} annotate --overwrite node {HOST} {both}")


def test_an_agent_that_is_silent_takes_the_node_out_too(
    site: Faulty, capsys: pytest.CaptureFixture[str]
) -> None:
    pod, _ = site.worker()
    assert site.is_open(), "a fault before left the node out of service"
    began = time.time()
    site.on(HOST, "systemctl stop ironspan-gpud")
    until(site.closed, True)
    closed = site.cordoned() - began
    assert "agent_silent" in " ".join(site.record()["evidence"])
    # What runs goes on: nothing is known to be wrong.
    assert site.worker()[0] == pod
    site.on(HOST, "systemctl start ironspan-gpud")
    until(lambda: site.record()["state"], "testing")
    site.work(0)
    until(site.is_open, True, PATIENCE_S)
    node = site.node()
    assert site.went(began) == (SUSPECT, "testing", READY)
    assert said(node, model.PREFLIGHT)["passed"] is True
    assert moment(said(node, model.PREFLIGHT)["started"]) > began
    with capsys.disabled():
        print(
            f"\nsilent for 30 s: cordoned {closed - 30:.1f} s later, back after {time.time() - began:.0f} s"
        )
