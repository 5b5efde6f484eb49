# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runtime classes on hosts of a lab: another release under a pod that answers, smoke job, bench.

Needs ``ironspan artifacts build --set upgrade``: the release to begin with.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import shutil
import subprocess
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import default_index_path

from tests.bench.table import Table
from tests.integration.conftest import Cluster, lab_cluster
from tests.support import gvisor_release
from tests.support.gvisor_release import OLDER, RELEASE
from tests.support.playbooks import Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
HOST = "rack-1"
SERVE = ["httpd", "-f", "-p", "8080", "-h", "/etc"]
CLASSES = [{"name": "gvisor"}, {"name": "gvisor-memory", "flags": {"overlay2": "root:memory"}}]
SMOKE = {
    "gvisor_smoke_enabled": True,
    "gvisor_smoke_interval_seconds": 60,
    "gvisor_classes": CLASSES,
}
PATIENCE_S = 180.0
STARTS = """
import http.client, json, statistics, time
def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", 8009)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())
def seconds(name, runtime):
    pods = "/api/v1/namespaces/default/pods"
    container = {"name": "main", "image": "docker.io/library/busybox:1.37.0", "command": ["sleep", "3600"]}
    spec = {"nodeName": "rack-1", "terminationGracePeriodSeconds": 0, "containers": [container], **runtime}
    began = time.monotonic()
    ask("POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    while True:
        found = ask("GET", pods + "/" + name).get("status", {}).get("conditions", [])
        if any(each["type"] == "Ready" and each["status"] == "True" for each in found):
            break
        time.sleep(0.02)
    taken = time.monotonic() - began
    ask("DELETE", pods + "/" + name)
    return taken
found = {"gvisor": [], "runc": []}
for number in range(7):
    for name, runtime in (("gvisor", {"runtimeClassName": "gvisor"}), ("runc", {})):
        found[name].append(seconds(f"start-{name}-{number}", runtime))
print(json.dumps({name: statistics.median(each[1:]) for name, each in found.items()}))
"""
"""Run on the control plane: seconds from asking for a pod until it is Ready; the first of each counts not."""

PROGRAMS = "for p in /proc/[0-9]*; do readlink $p/exe; done | grep ^/opt/gvisor | sort | uniq -c"


class Runtimes(Cluster):
    """The cluster, with gVisor as it is asked for."""

    wanted: t.ClassVar[dict[str, t.Any]] = {}

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        return super().site("-e", json.dumps({**SMOKE, **self.wanted}), *options)

    def bench(self) -> Played:
        """Run the bench."""
        variables = json.dumps({**SMOKE, **self.wanted})
        return play("runtime_bench", self.inventory, self.folder, "-e", variables)

    def start(self, name: str) -> str:
        """Start a pod in gVisor that answers; return its address when it does."""
        container = {"name": "main", "image": "docker.io/library/busybox:1.37.0", "command": SERVE}
        spec = {
            "runtimeClassName": "gvisor",
            "nodeName": HOST,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.on("az-1", f"echo {shlex.quote(json.dumps(pod))} | {KUBECTL} apply -f -")
        self.on("az-1", f"{KUBECTL} wait --for=condition=Ready --timeout=150s pod/{name}")
        return str(self.kubectl("get", "pod", name)["status"]["podIP"])

    def container(self, name: str) -> tuple[str, int]:
        """Return which container a pod runs, and how often it was started again."""
        (status,) = self.kubectl("get", "pod", name)["status"]["containerStatuses"]
        return status["containerID"], status["restartCount"]

    def programs(self) -> str:
        """Return the programs of gVisor that run on the host."""
        return self.on(HOST, PROGRAMS, check=False)

    def releases(self) -> set[str]:
        """Return the releases on the host."""
        return set(self.on(HOST, "ls /opt/gvisor").split())

    def smoke(self) -> dict[str, t.Any]:
        """Run the smoke job, as its timer does, with releases old enough to be removed."""
        self.on(HOST, "touch -d '2 hours ago' /opt/gvisor/*; systemctl start ironspan-runtime-smoke")
        return dict(json.loads(self.on(HOST, "cat /var/lib/ironspan-runtime/report.json")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtimes]:
    gvisor_release.program("runsc", OLDER)
    mirror = default_index_path().parent
    folder = mirror / f"ironspan-test-{secrets.token_hex(4)}"
    index = tmp_path_factory.mktemp("index") / "index.json"
    folder.mkdir()
    try:
        archive = folder / "gvisor.tar.bz2"
        gvisor_release.pack(archive)
        gvisor_release.index_with(archive, f"/{archive.relative_to(mirror)}", index)
        Runtimes.wanted = {"gvisor_version": OLDER, "site_artifacts_index": str(index)}
        with lab_cluster(Runtimes, "rttest", azure=1, rack=1, azure_services=False) as made:
            assert made.first is not None
            assert made.first.status == 0, made.first.output[-4000:]
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Asking:
    """Asks a pod ten times a second and keeps what was wrong."""

    def __init__(self, site: Runtimes, address: str) -> None:
        self.wrong: list[str] = []
        self.right = 0
        self._site, self._stop = site, f"/tmp/stop-{secrets.token_hex(4)}"
        ask = f"curl -s -o /dev/null -m 20 -w '%{{http_code}}\\n' http://{address}:8080/passwd"
        loop = f"while [ ! -e {self._stop} ]; do {ask}; sleep 0.1; done"
        self._process = subprocess.Popen(
            site.lab.ssh_command(HOST, [loop]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "200":
                self.right += 1
            else:
                self.wrong.append(line.strip())

    def end(self) -> None:
        """Stop asking."""
        self._site.on(HOST, f"touch {self._stop}")
        self._process.wait(timeout=PATIENCE_S)
        self._thread.join(timeout=PATIENCE_S)


def test_each_class_is_tried_at_install_and_by_a_timer(site: Runtimes) -> None:
    report = json.loads(site.on(HOST, "cat /var/lib/ironspan-runtime/report.json"))
    assert (report["ok"], report["release"]) == (True, OLDER)
    assert [each["name"] for each in report["classes"]] == ["gvisor", "gvisor-memory"]
    units = site.on(HOST, "systemctl is-active ironspan-runtime-ready ironspan-runtime-smoke.timer")
    assert units.split() == ["active", "active"]
    until = time.monotonic() + PATIENCE_S
    before = report["time"]
    while json.loads(site.on(HOST, "cat /var/lib/ironspan-runtime/report.json"))["time"] == before:
        assert time.monotonic() < until, "the timer has not tried it"
        time.sleep(2)


def test_the_bench_finds_the_overhead_that_is_declared(site: Runtimes) -> None:
    played = site.bench()
    assert played.status == 0, played.output[-4000:]
    print(*(line for line in played.output.splitlines() if "times runc" in line), sep="\n")


def test_another_release_from_its_archive_under_a_pod_that_answers(site: Runtimes) -> None:
    address = site.start("before")
    assert f"/opt/gvisor/{OLDER}/runsc" in site.programs()
    container = site.container("before")
    asking = Asking(site, address)
    try:
        site.wanted.update(gvisor_version=RELEASE, gvisor_layout="archive")
        played = site.site()
        assert played.status == 0, played.output[-4000:]
        site.start("after")
        programs = site.programs()
        assert f"/opt/gvisor/{OLDER}/runsc" in programs
        assert f"/opt/gvisor/{RELEASE}/gvisor-bin/gvisor_sentry" in programs
        report = site.smoke()
        assert (report["ok"], report["release"], report["removed"]) == (True, RELEASE, [])
        assert site.releases() == {OLDER, RELEASE}
        said = site.on("az-1", f"{KUBECTL} exec before -- dmesg")
        assert "Starting gVisor" in said
    finally:
        asking.end()
    assert asking.wrong == []
    assert asking.right > 20
    assert site.container("before") == container
    assert container[1] == 0


def test_a_second_run_changes_nothing(site: Runtimes) -> None:
    played = site.site()
    assert played.status == 0, played.output[-4000:]
    assert played.changed == {}, played.output[-4000:]


def test_what_is_lost_of_an_archive_comes_back(site: Runtimes) -> None:
    site.on(HOST, f"rm /opt/gvisor/{RELEASE}/gvisor-bin/gvisor_sentry")
    played = site.site()
    assert set(played.changed) == {HOST}, played.output[-4000:]
    assert site.on(HOST, f"stat -c %a /opt/gvisor/{RELEASE}/gvisor-bin/gvisor_sentry") == "755"


def test_a_release_goes_with_its_last_sandbox(site: Runtimes) -> None:
    assert site.smoke()["removed"] == []
    site.on("az-1", f"{KUBECTL} delete pod before --wait")
    until = time.monotonic() + PATIENCE_S
    while f"/opt/gvisor/{OLDER}/" in site.programs():
        assert time.monotonic() < until
        time.sleep(1)
    report = site.smoke()
    assert report["ok"]
    # The timer may have been first.
    assert site.releases() == {RELEASE}
    assert site.container("after")[1] == 0


def test_flags_with_which_nothing_starts_are_taken_back(site: Runtimes) -> None:
    before = site.on(HOST, "cat /etc/containerd/runsc.toml")
    # The archive of these tests lacks one of the programs beside runsc.
    site.wanted["gvisor_runsc_flags"] = {"sidecar-usage-policy": "STRICT"}
    try:
        played = site.site()
    finally:
        site.wanted.pop("gvisor_runsc_flags")
    assert played.status != 0
    assert "no sandbox starts" in played.output, played.output[-4000:]
    assert site.on(HOST, "cat /etc/containerd/runsc.toml") == before
    assert site.smoke()["ok"]
    site.start("again")


GPUS = {
    "gvisor_classes": [
        *CLASSES,
        {"name": "gvisor-gpu", "kind": "nvproxy"},
        {"name": "kata-gpu", "kind": "kata"},
    ]
}
DRIVER = {"gvisor_gpu_driver": "580.159.03", "gvisor_gpu_model": "H100"}


@pytest.mark.parametrize(
    ("groups", "variables", "says"),
    [
        ((), {"gvisor_platform": "kvm"}, ["/dev/kvm"]),
        (("gpu", "gvisor_gpu"), {**GPUS, **DRIVER}, ["GPU driver", "580.159.03"]),
        (("gpu", "kata_gpu"), GPUS, ["/dev/vfio/vfio", "/opt/kata/bin/containerd-shim-kata-v2"]),
    ],
    ids=["kvm", "nvproxy", "kata"],
)
def test_a_host_refuses_what_it_cannot_serve(
    site: Runtimes, groups: tuple[str, ...], variables: dict[str, t.Any], says: list[str]
) -> None:
    before = site.digests(HOST)
    more = site.folder / "more.yml"
    children = {group: {"hosts": {HOST: None}} for group in groups}
    more.write_text(yaml.safe_dump({"all": {"children": children}}))
    played = site.site("-i", str(more), "-e", json.dumps(variables))
    assert played.status != 0, played.output[-4000:]
    assert (played.recap[HOST]["failed"], played.recap[HOST]["changed"]) == (1, 0)
    assert all(text in played.output for text in says), played.output[-4000:]
    assert site.digests(HOST) == before


def test_the_bench_names_the_overhead_to_declare(site: Runtimes) -> None:
    # Other sandboxes share pages with those that are measured.
    site.on("az-1", f"{KUBECTL} delete pod --all --wait")
    site.wanted["gvisor_overhead_memory"] = "400Mi"
    assert site.site().status == 0
    played = site.bench()
    assert played.status != 0
    named = re.search(r"gvisor declares 400 MiB, write overhead_memory: (\d+Mi)", played.output)
    assert named, played.output[-4000:]
    site.wanted["gvisor_overhead_memory"] = named[1]
    assert site.site().status == 0
    found = site.kubectl("get", "runtimeclass", "gvisor")["overhead"]["podFixed"]["memory"]
    assert found == named[1]
    played = site.bench()
    assert played.status == 0, played.output[-4000:]
    print(*(line for line in played.output.splitlines() if "times runc" in line), sep="\n")


@pytest.mark.bench
def test_a_pod_starts_in_at_most_twice_the_time(site: Runtimes, table: Table) -> None:
    proxy = f"{KUBECTL} proxy --port 8009 >/dev/null & trap 'kill %1' EXIT; sleep 2"
    found = json.loads(site.on("az-1", f"{proxy}; python3 -c {shlex.quote(STARTS)}"))
    note = f"{found['gvisor']:.2f} s and {found['runc']:.2f} s"
    what = "start of a pod in gVisor against runc"
    table.add("Runtime classes", what, found["gvisor"] / found["runc"], 2, "x", note)
    table.check()
