# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The GPU driver of four nodes changed wave after wave, while pods with GPUs run, and the way back.

Kubelet, containerd, device plugin, agent and repair controller are the real ones, as the roles install them;
apt and dpkg change packages of the names of Ubuntu's, and the hosts boot. What stands in for a driver:
tests/support/driver_packages, in each boot in the version of the module that is installed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import typing as t
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from ironspan.gpu_repair import model
from tests.integration.conftest import lab_cluster
from tests.integration.gpu_lab import CUDA, FEW, KUBECTL, ON, STATE, Gpus, said, until
from tests.support import driver_packages, nvml
from tests.support.playbooks import BIN, ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]
HOSTS = ("rack-1", "rack-2", "rack-3", "rack-4")
GPUS, REPLICAS = 2, 3
OLD, NEW, BAD = "580.126.09", "580.159.03", "580.173.02"
BROKEN = "rack-2"
"""The node whose GPUs compute wrongly with the driver ``BAD``, until somebody mends them."""
CHANGE = "ironspan/driver-change"
WRONG = "/var/lib/gpus/wrong-"
PATIENCE_S = 300.0
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "work"},
    "spec": {"minAvailable": REPLICAS - 1, "selector": {"matchLabels": {"app": "work"}}},
}
BEFORE = (
    f"V=$(modinfo -k {driver_packages.KERNEL} -F version nvidia 2>/dev/null) || exit 0",
    f"cat {CUDA}.usual >{CUDA}",
    f"if [ -e {WRONG}$V ]; then cat {WRONG}$V >>{CUDA}; fi",
)


@dataclass(frozen=True)
class Seen:
    """A Node at one moment.

    Args:
        host: its name.
        out: it takes no pods, or its kubelet says that it is not ready.
        cordoned: it takes no pods.
        boot: as its kubelet reports it.
        driver: as its agent reports it.
        verdict: of the preflight.
    """

    host: str
    out: bool
    cordoned: bool
    boot: str
    driver: str
    verdict: dict[str, t.Any]

    @classmethod
    def of(cls, node: dict[str, t.Any]) -> Seen:
        """Read it from the object."""
        ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
        cordoned = bool(node["spec"].get("unschedulable"))
        return cls(
            node["metadata"]["name"],
            cordoned or ready != ["True"],
            cordoned,
            node["status"]["nodeInfo"]["bootID"],
            said(node, "ironspan.io/gpu-seen").get("driver", ""),
            said(node, model.PREFLIGHT),
        )


class Watch(threading.Thread):
    """Every change of the four Nodes, as the API server tells them; a watch that it ends is begun again.

    Args:
        command: that watches.
    """

    def __init__(self, command: list[str]) -> None:
        super().__init__(daemon=True)
        self.seen: list[Seen] = []
        self._command, self._over = command, threading.Event()
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def run(self) -> None:
        """Read until it is told to end."""
        while not self._over.is_set():
            assert self._process.stdout is not None
            lines: list[str] = []
            for line in self._process.stdout:
                lines.append(line)
                if line == "}\n":
                    self.seen.append(Seen.of(json.loads("".join(lines))))
                    lines = []
            self._process.wait()
            if not self._over.wait(0.5):
                self._process = self._begin()

    def end(self) -> None:
        """Stop it; what it has not told yet is of no interest any more."""
        assert self.is_alive(), "the watch broke"
        self._over.set()
        while self.is_alive():
            self._process.kill()
            self.join(1)

    def most_out(self) -> int:
        """Return how many nodes were out of service at the same time."""
        out: dict[str, bool] = {}
        most = 0
        for seen in self.seen:
            out[seen.host] = seen.out
            most = max(most, sum(out.values()))
        return most

    def opened(self) -> list[Seen]:
        """Return the Nodes as they were in the change that uncordoned them."""
        last: dict[str, bool] = {}
        found = []
        for seen in self.seen:
            if last.get(seen.host) and not seen.cordoned:
                found.append(seen)
            last[seen.host] = seen.cordoned
        return found

    def boots(self, host: str) -> list[str]:
        """Return the boots of a host, in their order."""
        return list(dict.fromkeys(seen.boot for seen in self.seen if seen.host == host))


class Wave(Gpus):
    """The cluster, with four hosts whose driver changes."""

    ON: t.ClassVar[dict[str, t.Any]] = {
        **ON,
        "nvidia_driver_kernel": driver_packages.KERNEL,
        "nvidia_driver_model": "H100",
        "nvidia_health_enabled": True,
        "nvidia_health_gpus_count": GPUS,
        "gpu_repair_enabled": True,
        "gpu_repair_mode": "repair",
        "site_max_unavailable": 1,
    }
    prepared = False

    def site(self, *options: str) -> Played:
        """Run site.yml; before the first time hosts get a source of packages and what a boot does."""
        if not self.prepared:
            self.prepare()
        return play("site", self.inventory, self.folder, *self.named(OLD), *options)

    def named(self, driver: str, **more: t.Any) -> list[str]:
        """Return the options that declare a driver."""
        file = self.folder / "gpu.yml"
        gpu = {"hosts": dict.fromkeys(HOSTS), "vars": {"nvidia_driver_version": driver}}
        file.write_text(yaml.safe_dump({"all": {"vars": {**self.ON, **more}, "children": {"gpu": gpu}}}))
        return ["-i", str(file)]

    def prepare(self) -> None:
        """Give hosts the packages, and GPUs that are there when a driver is loaded."""
        packages = self.folder / "debs"
        packages.mkdir()
        driver_packages.make(packages, (OLD, NEW, BAD), STATE, CUDA)
        self.state = nvml.State(self.folder / "gpus", "h100", GPUS)
        files = sorted(path.name for path in packages.iterdir() if path.is_file())
        packed = subprocess.run(["tar", "-c", *files], check=True, cwd=packages, stdout=subprocess.PIPE)
        source = "deb [trusted=yes] copy:/srv/driver ./"
        unpack = f"mkdir -p /srv/driver && tar -x -C /srv/driver && echo '{source}' >/etc/apt/sources.list"
        for host in HOSTS:
            subprocess.run(self.lab.ssh_command(host, [unpack]), check=True, input=packed.stdout)
            self.load_at_boot(host, "$V", BEFORE)
            self.put(f"{CUDA}.usual", FEW, host)
        self.prepared = True

    def upgrade(self, driver: str, *options: str, **more: t.Any) -> tuple[int, str]:
        """Run ``ironspan upgrade`` of the four; return its exit code and what it said."""
        named = (*HOSTS, *self.inventories(driver, **more))
        done = self.command("upgrade", *named, *options, timeout=1500)
        return done.returncode, done.stdout

    def inventories(self, driver: str, **more: t.Any) -> list[str]:
        """Return the options of a command that name the site with a driver."""
        return ["-i", str(self.inventory), *self.named(driver, **more), "--plain"]

    def watch(self) -> Watch:
        """Begin to watch the Nodes."""
        nodes = f"{KUBECTL} get nodes -l '!node-role.kubernetes.io/control-plane' --watch -o json"
        watch = Watch(self.lab.ssh_command("az-1", [nodes]))
        watch.start()
        until(lambda: {seen.host for seen in watch.seen}, set(HOSTS))
        return watch

    def packages(self, host: str) -> set[str]:
        """Return the versions of the driver that a host has packages or the module of."""
        names = " ".join((driver_packages.COMPUTE, driver_packages.COMMON, *driver_packages.BESIDE))
        listed = self.on(host, f"dpkg-query -W -f '${{Version}} ${{db:Status-Abbrev}}\\n' {names}")
        module = self.on(host, f"modinfo -k {driver_packages.KERNEL} -F version nvidia")
        lines = [line.split() for line in listed.splitlines()]
        assert {state for _, state in lines} == {"hi"}, listed
        return {version.rpartition("-")[0] for version, _ in lines} | {module}

    def drivers(self) -> dict[str, str]:
        """Return the driver that each Node runs with and has packages of, and that it takes pods."""
        found = {}
        for host in HOSTS:
            assert self.is_open(host), self.node(host)
            driver = Seen.of(self.node(host)).driver
            assert self.packages(host) == {driver}, host
            found[host] = driver
        return found

    def boot(self, host: str) -> str:
        """Return the boot that a host is in."""
        return self.on(host, "cat /proc/sys/kernel/random/boot_id")

    def working(self) -> int:
        """Return how many pods with a GPU are ready."""
        return int(self.kubectl("get", "deployment", "work")["status"].get("readyReplicas", 0))


def assert_proven(seen: Seen, driver: str) -> None:
    """Insist that a Node was uncordoned after a passed preflight of that boot and driver."""
    assert (seen.driver, seen.verdict["driver"], seen.verdict["passed"]) == (driver, driver, True)
    assert seen.verdict["boot"] == seen.boot


@pytest.fixture(scope="module")
def site() -> Iterator[Wave]:
    name = f"gpuwave{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    with lab_cluster(Wave, name, azure=1, rack=4, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        yield made


def test_new_nodes_get_their_first_driver_and_prove_themselves(site: Wave) -> None:
    for host in HOSTS:
        # The driver is installed, and nothing of it is loaded before a boot.
        node = site.node(host)
        assert model.PREFLIGHT_TAINT in {taint["key"] for taint in node["spec"]["taints"]}
        assert (site.packages(host), Seen.of(node).driver) == ({OLD}, "")
    boots = {host: site.boot(host) for host in HOSTS}
    watch = site.watch()
    status, output = site.upgrade(OLD, site_max_unavailable="100%")
    watch.end()
    assert status == 0, output[-6000:]
    assert {seen.host for seen in watch.opened()} == set(HOSTS)
    for seen in watch.opened():
        assert_proven(seen, OLD)
        assert seen.boot != boots[seen.host]
    assert site.drivers() == dict.fromkeys(HOSTS, OLD)


def test_a_wave_never_takes_more_than_the_budget_out(site: Wave, capsys: pytest.CaptureFixture[str]) -> None:
    site.work(REPLICAS)
    site.apply(BUDGET)
    until(site.working, REPLICAS)
    boots, began = {host: site.boot(host) for host in HOSTS}, time.monotonic()
    watch = site.watch()
    status, output = site.upgrade(NEW)
    watch.end()
    assert status == 0, output[-6000:]
    assert watch.most_out() == 1
    opened = watch.opened()
    assert [seen.host for seen in opened] == list(HOSTS)
    for seen in opened:
        assert_proven(seen, NEW)
        assert seen.boot != boots[seen.host]
    assert site.drivers() == dict.fromkeys(HOSTS, NEW)
    until(site.working, REPLICAS)
    with capsys.disabled():
        print(
            f"\nfour nodes, one at a time: {time.monotonic() - began:.0f} s, {len(watch.seen)} changes seen"
        )


def test_the_same_again_changes_nothing(site: Wave) -> None:
    boots = {host: site.boot(host) for host in HOSTS}
    watch = site.watch()
    status, output = site.upgrade(NEW)
    watch.end()
    assert status == 0, output[-6000:]
    assert watch.most_out() == 0
    assert {host: site.boot(host) for host in HOSTS} == boots


def test_a_node_that_fails_with_it_goes_back_and_no_other_wave_begins(
    site: Wave, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put(f"{WRONG}{BAD}", b"wrong.mma 1\n", BROKEN)
    boots, began = {host: site.boot(host) for host in HOSTS}, time.monotonic()
    watch = site.watch()
    status, output = site.upgrade(BAD)
    watch.end()
    assert status == 1, output[-6000:]
    assert f"The GPUs of {BROKEN} failed their preflight with the driver of the inventory" in output
    assert watch.most_out() == 1
    first, second = watch.opened()
    assert (first.host, second.host) == (HOSTS[0], BROKEN)
    assert_proven(first, BAD)
    assert_proven(second, NEW)
    assert site.drivers() == {**dict.fromkeys(HOSTS, NEW), HOSTS[0]: BAD}
    # The new driver's boot, and the one of before.
    assert len(watch.boots(BROKEN)) == 3
    failed = [seen.verdict for seen in watch.seen if seen.host == BROKEN and seen.driver == BAD]
    assert any(verdict.get("driver") == BAD and verdict["passed"] is False for verdict in failed)
    assert {host: site.boot(host) for host in HOSTS[2:]} == {host: boots[host] for host in HOSTS[2:]}
    assert CHANGE not in site.node(BROKEN)["metadata"]["annotations"]
    until(site.working, REPLICAS)
    with capsys.disabled():
        print(f"\none node, and one there and back: {time.monotonic() - began:.0f} s")


def test_killed_on_the_way_back_the_next_run_finishes_it(site: Wave) -> None:
    watch = site.watch()
    command = [str(BIN / "ironspan"), "upgrade", *HOSTS, *site.inventories(BAD)]
    log = site.folder / "killed.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            start_new_session=True, env=os.environ | {"XDG_STATE_HOME": str(site.folder / "state")},
        )  # fmt: skip
        try:
            end = time.monotonic() + PATIENCE_S
            while not said(site.node(BROKEN), CHANGE).get("back"):
                assert process.poll() is None and time.monotonic() < end, log.read_text()[-6000:]
                time.sleep(0.5)
        finally:
            killed(process)
    assert Seen.of(site.node(BROKEN)).cordoned
    status, output = site.upgrade(BAD)
    watch.end()
    assert status == 1, output[-6000:]
    assert f"The GPUs of {BROKEN} failed their preflight with the driver of the inventory" in output
    assert watch.most_out() == 1
    (opened,) = watch.opened()
    assert opened.host == BROKEN
    assert_proven(opened, NEW)
    assert site.drivers() == {**dict.fromkeys(HOSTS, NEW), HOSTS[0]: BAD}


def killed(process: subprocess.Popen[t.Any]) -> None:
    """End a run and all that it started at once, those too that have a session of their own."""
    found = [process.pid]
    for each in found:
        for file in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(child) for child in file.read_text().split()]
    for each in found:
        os.kill(each, signal.SIGKILL)
    process.wait()


def test_mended_the_same_command_gives_it_to_all(site: Wave) -> None:
    site.on(BROKEN, f"rm {WRONG}{BAD}")
    boot = site.boot(HOSTS[0])
    watch = site.watch()
    status, output = site.upgrade(BAD)
    watch.end()
    assert status == 0, output[-6000:]
    assert watch.most_out() == 1
    opened = watch.opened()
    assert [seen.host for seen in opened] == list(HOSTS[1:])
    for seen in opened:
        assert_proven(seen, BAD)
    assert site.drivers() == dict.fromkeys(HOSTS, BAD)
    assert site.boot(HOSTS[0]) == boot
    until(site.working, REPLICAS)
    checked = play("site", site.inventory, site.folder, *site.named(BAD), "--check")
    assert (checked.status, checked.changed) == (0, {}), checked.output[-6000:]
