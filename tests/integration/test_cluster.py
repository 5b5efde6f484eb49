# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""site.yml end to end on a small lab: builds, changes nothing twice, repairs, refuses, survives.

The tests share one cluster and leave it whole; their order is that of a cluster's life.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import typing as t
import uuid
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import seal

from ironspan.lab import host as lab_host
from ironspan.lab import machine, mirror, mounts, state
from ironspan.lab.layout import LabHost
from tests.bench.table import Table
from tests.integration import conformance_cases, member_cases, taken_host
from tests.integration.conftest import Cluster
from tests.support import awx, memory
from tests.support.faults import insist
from tests.support.playbooks import BIN, ROOT, Played, play
from tests.support.simulated_site import RUN, controllers_of, kill_all, parent_of, wait_for

pytestmark = pytest.mark.lab

HOSTS = ("az-1", "az-2", "az-3", "rack-1", "rack-2")
WORKERS = ("rack-1", "rack-2")
NODES = {"az-1", "az-2", "rack-1", "rack-2"}
CUT_S = 60
FIN_TIMEOUT = "net.ipv4.tcp_fin_timeout"
"""A setting that each host has of its own and nothing here minds."""
EVIL = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "evil"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
}


def test_bare_hosts_become_a_cluster(cluster: Cluster) -> None:
    assert cluster.first is not None
    assert cluster.first.status == 0, cluster.first.output
    cluster.wait_until_ready(NODES)
    members = cluster.on(
        "az-1",
        "set -a; . /etc/etcd/etcdctl.env; etcdctl --command-timeout=60s endpoint health --cluster -w json",
    )
    assert [member["health"] for member in json.loads(members)] == [True, True, True]


def test_a_worker_costs_few_tasks_and_ssh_operations(cluster: Cluster) -> None:
    assert cluster.first is not None
    for host in WORKERS:
        row = cluster.first.recap[host]
        assert row["ok"] + row["skipped"] <= 10
        assert cluster.first.ssh[cluster.address(host)] <= 3


def test_a_gvisor_pod_answers_across_the_wan(cluster: Cluster) -> None:
    done = cluster.command(
        "verify", "-i", str(cluster.inventory), "--report", str(cluster.folder / "report.json")
    )
    assert done.returncode == 0, done.stdout
    report = json.loads((cluster.folder / "report.json").read_text())
    assert report["ok"] is True
    assert all(check["ok"] for check in report["checks"])
    assert "gvisor" in json.dumps(report).lower()


@pytest.mark.bench
def test_a_small_lab_with_its_cluster_fits_into_8_gib(cluster: Cluster, table: Table) -> None:
    df = "df --output=used -B1 -t tmpfs | tail -n +2"
    in_memory = sum(int(line) for host in HOSTS for line in cluster.on(host, df).split())
    used = memory.used_bytes(cluster.lab, in_memory) / 2**30
    table.add("Lab", "memory of 3 + 2 hosts with their cluster, all told", used, 8, "GiB")
    table.check()


def test_the_second_run_changes_nothing_with_one_ssh_operation_a_host(cluster: Cluster) -> None:
    played = cluster.site()
    assert played.status == 0, played.output
    assert played.changed == {}, played.output
    assert played.ssh == {cluster.address(host): 1 for host in HOSTS}


def test_check_mode_of_a_whole_cluster_says_nothing_changes(cluster: Cluster) -> None:
    played = cluster.site("--check", "--diff")
    assert played.status == 0, played.output
    assert played.changed == {}, played.output


def test_a_few_conformance_tests_of_every_area_pass(cluster: Cluster) -> None:
    """All of them are in test_conformance.py, which takes hours."""
    conformance_cases.a_few_of_every_area(cluster)


SECRET = "/var/lib/kubelet/pki/kubelet-client-current.pem"


def test_drift_is_found_and_repaired_and_nothing_else_touched(cluster: Cluster) -> None:
    before = {host: cluster.digests(host) for host in HOSTS}
    cluster.on("rack-1", "echo '# edited by hand' >> /etc/containerd/config.toml")
    cluster.on("rack-1", "rm /usr/local/bin/runsc")
    cluster.on("rack-2", "systemctl stop kubelet")
    # The kubelet's own key: a link to a dated file.
    cluster.on("rack-1", f"chmod 0644 {SECRET}")
    secret = cluster.on("rack-1", f"readlink -f {SECRET}")

    check = cluster.site("--check", "--diff")
    assert set(check.changed) == set(WORKERS), check.output
    assert cluster.on("rack-2", "systemctl is-active kubelet", check=False) == "inactive"
    assert secret in check.output

    played = cluster.site()
    assert played.status == 0, played.output
    assert set(played.changed) == set(WORKERS), played.output
    assert {
        host: played.ssh[cluster.address(host)] for host in HOSTS if host not in WORKERS
    } == dict.fromkeys(("az-1", "az-2", "az-3"), 1)
    assert {host: cluster.digests(host) for host in HOSTS} == before
    assert cluster.on("rack-2", "systemctl is-active kubelet") == "active"
    assert cluster.on("rack-1", f"stat -c %a {secret}") == "600"
    assert cluster.site().changed == {}


def test_etcds_user_leads_root_nowhere(cluster: Cluster) -> None:
    """It cannot exchange what root reads; and where it could, as in releases before, root does not follow."""
    for path in ("/etc/etcd/pki/link", "/var/lib/etcd/link"):
        refused = cluster.on("az-1", f"runuser -u etcd -- ln -s /etc/shadow {path} 2>&1", check=False)
        assert "Permission denied" in refused
    shadow = cluster.on("az-1", "stat -c '%U %G %a %Y' /etc/shadow")
    secret = cluster.on("az-1", "head -n 1 /etc/shadow")
    cluster.on(
        "az-1",
        "chown etcd /etc/etcd/pki && cd /etc/etcd/pki && runuser -u etcd -- mv server.crt kept.crt"
        " && runuser -u etcd -- ln -s /etc/shadow server.crt",
    )
    # A check says that the folder changes, and that what is in it is known only then.
    checked, played = cluster.site("--check", "--diff"), cluster.site()
    assert checked.status != 0 and played.status != 0
    text = " ".join(played.output.split())
    assert "/etc/etcd/pki/server.crt: is or leads through a symbolic link that is not root's" in text
    assert secret not in checked.output + played.output
    assert cluster.on("az-1", "stat -c '%U %G %a %Y' /etc/shadow") == shadow
    cluster.on("az-1", "mv -T /etc/etcd/pki/kept.crt /etc/etcd/pki/server.crt")
    assert set(cluster.site().changed) == {"az-1"}
    assert cluster.on("az-1", "stat -c '%U %G %a' /etc/etcd/pki") == "root etcd 750"
    assert cluster.site().changed == {}


MEASURED = re.compile(r"takes \d+ ms")
"""In findings about times of the disk, the link and the API: the machine's, whose other users nobody here can
answer for."""


def doctor(cluster: Cluster) -> tuple[dict[str, set[str]], str]:
    """Ask the doctor; return the hosts with problems by check, but for times, and its page."""
    file = cluster.folder / "doctor.json"
    done = cluster.command("doctor", "-i", str(cluster.inventory), "--plain", "--report", str(file))
    assert file.exists(), done.stdout
    found: dict[str, set[str]] = {}
    problems = 0
    for check in json.loads(file.read_text())["checks"]:
        for finding in check["findings"]:
            problems += finding["level"] == "problem"
            if finding["level"] == "problem" and not MEASURED.search(finding["what"]):
                found.setdefault(check["name"], set()).update(finding["hosts"])
    assert done.returncode == (1 if problems else 0), done.stdout
    return found, done.stdout


def cured(cluster: Cluster) -> str:
    """Insist that the doctor finds nothing, once pods have told that they run again; return its page."""
    until = time.monotonic() + 180
    while True:
        found, page = doctor(cluster)
        if not found:
            return page
        assert time.monotonic() < until, page


def test_the_doctor_names_what_is_broken_and_what_fixes_it(cluster: Cluster) -> None:
    cured(cluster)
    cluster.on("rack-2", "systemctl stop kubelet")
    cluster.on("rack-1", "echo '# edited by hand' >> /etc/containerd/config.toml")
    cluster.on("az-3", "systemctl stop etcd")
    found, page = doctor(cluster)
    assert found["services"] == {"rack-2", "az-3"}, page
    assert found["drift"] == {"rack-1", "rack-2", "az-3"}
    assert found["etcd"] == {"az-3"}
    assert "az-3 at 10.98." in page and "does not answer: Connection refused" in page
    # What it says fixes it, all at once.
    assert f"-> ironspan apply -i {cluster.inventory} --limit rack-1" in page
    done = cluster.command("apply", "-i", str(cluster.inventory), "--plain", "--limit", "rack-1,rack-2,az-3")
    assert done.returncode == 0, done.stdout
    cluster.wait_until_ready(NODES)
    cured(cluster)


def follow(cluster: Cluster, name: str) -> subprocess.CompletedProcess[str]:
    """Run, word by word, the command that the doctor's last page has for the problem of a check."""
    checks = json.loads((cluster.folder / "doctor.json").read_text())["checks"]
    (remedy,) = {
        finding["remedy"].partition(";")[0]
        for check in checks
        for finding in check["findings"]
        if check["name"] == name and finding["level"] == "problem"
    }
    program, command, *words = shlex.split(remedy)
    assert program == "ironspan"
    done = cluster.command(command, "-i", str(cluster.inventory), "--plain", *words)
    assert done.returncode == 0, done.stdout
    return done


def test_the_doctors_way_out_of_an_expired_certificate_works(cluster: Cluster) -> None:
    name = "/etc/kubernetes/pki/apiserver-kubelet-client"
    # The same names and usages, which a renewal takes over.
    expired = (
        f"openssl x509 -in {name}.crt -signkey {name}.key -not_before 20200101000000Z "
        f"-not_after 20200201000000Z -out /run/expired.crt && cat /run/expired.crt > {name}.crt"
    )
    cluster.on("az-2", expired)
    found, page = doctor(cluster)
    assert found["certificates"] == {"az-2"}, page
    assert f"-> ironspan apply -i {cluster.inventory} certs_renew" in page
    follow(cluster, "certificates")
    cured(cluster)
    cluster.assert_settled()


@contextlib.contextmanager
def begun(cluster: Cluster, phase: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Make a plan for both workers, begin to apply it; yield the command in a phase, and the run's name."""
    plan, name = cluster.folder / f"{uuid.uuid4().hex}.plan.json", uuid.uuid4().hex
    for host in WORKERS:
        cluster.on(host, "chmod 0600 /etc/containerd/certs.d/registry.k8s.io/hosts.toml")
    done = cluster.command("plan", "-i", str(cluster.inventory), "-o", str(plan))
    assert "2 of 5 hosts change" in done.stdout, done.stdout
    environment = {"XDG_STATE_HOME": str(cluster.folder / "state"), RUN: name}
    running = subprocess.Popen(
        [str(BIN / "ironspan"), "apply", str(plan), "-i", str(cluster.inventory), "--plain"],
        cwd=ROOT, env=os.environ | environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert running.stdout is not None
    for line in running.stdout:
        if phase in line:
            break
    try:
        yield running, name
    finally:
        kill_all(name)
        running.wait()


def test_a_run_that_was_killed_says_so_and_the_doctor_leads_to_its_end(cluster: Cluster) -> None:
    with begun(cluster, "== Assess") as (running, name):
        (playbook,) = [one for one in controllers_of(name) if parent_of(one) == running.pid]
        os.kill(playbook, signal.SIGKILL)
        output, _ = running.communicate(timeout=120)
        assert running.returncode == 3, output
        insist("run-cut-off", output)
        assert "hosts finished" not in output
        wait_for(lambda: not controllers_of(name), "workers of a killed run go on")
    found, page = doctor(cluster)
    assert "plans" in found, page
    follow(cluster, "plans")
    cured(cluster)
    cluster.assert_settled()


def test_a_plan_that_others_overtook_reddens_nothing(cluster: Cluster) -> None:
    with begun(cluster, "== Assess") as (running, name):
        running.send_signal(signal.SIGKILL)
        wait_for(lambda: not controllers_of(name), "ansible-playbook goes on without its command")
    found, page = doctor(cluster)
    assert found.keys() == {"plans", "drift"}, page
    assert set(cluster.site().changed) == set(WORKERS)
    assert "it is out of date, for rack-1, rack-2 changed since" in cured(cluster)


def test_two_slices_apply_one_plan_side_by_side(cluster: Cluster) -> None:
    plan = cluster.folder / "slices.plan.json"
    for host in WORKERS:
        cluster.on(host, "chmod 0600 /etc/containerd/certs.d/registry.k8s.io/hosts.toml")
    done = cluster.command("plan", "-i", str(cluster.inventory), "-o", str(plan))
    assert "2 of 5 hosts change" in done.stdout, done.stdout
    sides: list[tuple[list[str], Played]] = []

    def run(number: int) -> None:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"is{number}-", dir="/tmp"))
        try:
            script = folder / "hosts"
            hosts = awx.slice_of(cluster.inventory, number, 2, script)
            values = {**awx.SLICED, "ironspan_plan": str(plan)}
            sides.append((hosts, play("site", script, folder, "-e", json.dumps(values))))
        finally:
            shutil.rmtree(folder)

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {tuple(hosts) for hosts, _ in sides} == {("az-1", "az-3", "rack-2"), ("az-2", "rack-1")}
    for hosts, played in sides:
        assert played.status == 0, played.output
        assert set(played.changed) - {"localhost"} == set(hosts) & set(WORKERS), played.output
        assert set(played.ssh) == {cluster.address(host) for host in hosts}
    assert cluster.site().changed == {}


@contextlib.contextmanager
def lying_mirror(host: LabHost, path: str) -> Iterator[str]:
    """Serve the mirror with one wrong byte in one file."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: t.Any) -> None:
            super().__init__(*arguments, directory=str(mirror.folder_path()))

        def do_GET(self) -> None:
            if self.path != path:
                super().do_GET()
                return
            content = bytearray((mirror.folder_path() / path.lstrip("/")).read_bytes())
            content[len(content) // 2] ^= 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((str(host.site.controller), 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{host.site.controller}:{server.server_port}"
        server.shutdown()


def host_of(cluster: Cluster, name: str) -> LabHost:
    current = state.load(cluster.lab.name)
    assert current is not None
    return current.layout.host(name)


def test_a_wrong_byte_is_refused_and_the_host_stays_as_it_was(cluster: Cluster) -> None:
    cluster.on("rack-2", "rm /opt/gvisor/*/runsc")
    before = cluster.digests("rack-2")
    index = json.loads((mirror.folder_path() / "index.json").read_text())["artifacts"].values()
    version = yaml.safe_load((ROOT / "roles/gvisor/defaults/main.yml").read_text())["gvisor_version"]
    path = next(item["path"] for item in index if (item["name"], item["version"]) == ("runsc", version))
    with lying_mirror(host_of(cluster, "rack-2"), path) as url:
        done = cluster.command(
            "apply",
            "-i",
            str(cluster.inventory),
            "--limit",
            "rack-2,localhost",
            "-e",
            f"site_mirror_url={url}",
        )
    assert done.returncode == 1, done.stdout
    assert "rack-2: failed" in done.stdout
    assert "gvisor/runsc" in done.stdout
    assert cluster.digests("rack-2") == before
    assert cluster.on("rack-2", "find / -xdev -name '.ironspan-*' | wc -l") == "0"
    assert set(cluster.site().changed) == {"rack-2"}
    cluster.wait_until_ready(NODES)


def test_a_host_that_is_down_is_named_and_the_others_finish(cluster: Cluster) -> None:
    down = cluster.folder / "down.yml"
    down.write_text(json.dumps({"all": {"hosts": {"rack-2": {"ansible_port": 9}}}}))
    cluster.on("rack-1", "systemctl stop kubelet")
    done = cluster.command("apply", "-i", str(cluster.inventory), "-i", str(down))
    assert done.returncode == 4, done.stdout
    assert "rack-2: unreachable" in done.stdout
    insist("host-down", done.stdout)
    assert "finished: az-1, az-2, az-3, rack-1" in done.stdout
    assert cluster.on("rack-1", "systemctl is-active kubelet") == "active"


@pytest.mark.parametrize(
    ("variable", "words"),
    [("site_pod_cidr=10.96.0.0/12", "site_service_cidr"), ("etcd_qouta_bytes=1", "etcd_quota_bytes")],
)
def test_bad_input_is_refused_before_any_host_is_contacted(
    cluster: Cluster, variable: str, words: str
) -> None:
    done = cluster.command("apply", "-i", str(cluster.inventory), "-e", variable)
    assert done.returncode == 2, done.stdout
    assert words in done.stdout
    played = cluster.site("-e", variable)
    assert played.status != 0
    assert not played.ssh


def test_another_containerd_is_tried_kept_and_rolled_back(cluster: Cluster) -> None:
    inventory, before = ("-i", str(cluster.inventory)), cluster.digests("rack-2")
    change = ("-e", "containerd_max_concurrent_downloads=5", "--limit", "rack-2")
    tried = cluster.command("apply", "--try", "10m", *inventory, *change)
    assert tried.returncode == 0 and "ironspan confirm" in tried.stdout, tried.stdout
    refused = cluster.command("apply", *inventory, "--limit", "rack-2")
    assert refused.returncode == 4 and "on trial" in refused.stdout, refused.stdout
    confirmed = cluster.command("confirm", "rack-2", *inventory)
    assert confirmed.returncode == 0, confirmed.stdout
    assert cluster.digests("rack-2") != before
    back = cluster.command("rollback", "rack-2", *inventory)
    assert back.returncode == 0, back.stdout
    assert cluster.digests("rack-2") == before
    assert cluster.on("rack-2", "systemctl is-active containerd kubelet") == "active\nactive"
    cluster.wait_until_ready(NODES)


def test_a_plan_is_applied_when_approved_and_only_as_it_is(cluster: Cluster) -> None:
    key, plan = cluster.folder / "approver", cluster.folder / "change.plan.json"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True, timeout=60
    )
    signers = cluster.folder / "signers"
    signers.write_text(f"ada@example.com {key.with_suffix('.pub').read_text()}")
    settings = [{"name": "net.ipv4.ip_forward", "value": "1"}, {"name": FIN_TIMEOUT, "value": "55"}]
    policy = {"site_plan_approvals": 1, "site_plan_allowed_signers": str(signers)}
    more = cluster.folder / "policy.json"
    more.write_text(json.dumps({"all": {"vars": policy}}))
    # The policy is the inventory's; what changes may be given for one run.
    changes = ["-e", json.dumps({"base_sysctls": settings})]
    options = ["-i", str(cluster.inventory), "-i", str(more), *changes]
    live = f"cat /proc/sys/{FIN_TIMEOUT.replace('.', '/')}"

    def refused(*arguments: str, code: int, words: str) -> None:
        done = cluster.command("apply", *arguments, *options)
        assert done.returncode == code, done.stdout
        assert words in done.stdout

    before = {host: cluster.on(host, live) for host in HOSTS}
    refused(code=2, words="approvals")
    done = cluster.command("plan", *options, "-o", str(plan))
    assert done.returncode == 0, done.stdout
    assert "5 of 5 hosts change" in done.stdout
    printed = {
        words[1]: words[2:] for words in map(shlex.split, re.findall(r": +(ironspan .*)", done.stdout))
    }
    refused(str(plan), code=2, words="needs 1 approvals and has 0")
    refused(str(plan), "-e", "site_plan_approvals=0", code=2, words="cannot be given for one run")
    # The same site by another inventory, which knows nothing of the policy.
    other = cluster.command("apply", str(plan), "-i", str(cluster.inventory))
    assert other.returncode == 2 and "made where 1 approvals are needed" in other.stdout, other.stdout
    altered = cluster.folder / "altered.plan.json"
    altered.write_bytes(plan.read_bytes().replace(b'"55"', b'"54"'))
    refused(str(altered), code=2, words="altered")
    assert {host: cluster.on(host, live) for host in HOSTS} == before

    # Sealed again with one more object that no list names: it needs signatures of its own.
    content = json.loads(plan.read_bytes())["plan"]
    content["cluster"]["objects"]["flannel"] = [*content["cluster"]["objects"]["flannel"], EVIL]
    evil = cluster.folder / "evil.plan.json"
    evil.write_bytes(seal(content).data)
    refused(str(evil), code=2, words="needs 1 approvals and has 0")

    done = cluster.command("approve", *printed["approve"], "--key", str(key))
    assert done.returncode == 0, done.stdout
    cluster.on("rack-1", "chmod 0600 /etc/containerd/certs.d/registry.k8s.io/hosts.toml")
    done = cluster.command("apply", *printed["apply"])
    assert done.returncode == 4, done.stdout
    assert "changed since the plan was made" in done.stdout
    after = {host: cluster.on(host, live) for host in HOSTS}
    assert after == dict.fromkeys(HOSTS, "55") | {"rack-1": before["rack-1"]}

    # Somebody was brought to sign the other one as well: the object is on no list, so it is not applied.
    done = cluster.command("approve", str(evil), "--key", str(key))
    assert done.returncode == 0, done.stdout
    refused(str(evil), code=1, words="does not list this change in the cluster: ClusterRoleBinding evil")
    bindings = cluster.kubectl("get", "clusterrolebindings")["items"]
    assert "evil" not in {item["metadata"]["name"] for item in bindings}

    # The next run takes back what was given for that one, and puts right what was changed by hand.
    given = f"test -e /etc/sysctl.d/90-ironspan-base-sysctl-{FIN_TIMEOUT}.conf && echo given || echo gone"
    of_containerd = "stat -c %a /etc/containerd/certs.d/registry.k8s.io/hosts.toml"
    assert {cluster.on(host, given) for host in set(HOSTS) - {"rack-1"}} == {"given"}
    assert set(cluster.site().changed) == set(HOSTS)
    assert {cluster.on(host, given) for host in HOSTS} == {"gone"}
    assert cluster.on("rack-1", of_containerd) == "644"


def test_what_nothing_declares_goes_as_the_plan_lists_it(cluster: Cluster) -> None:
    """Objects that a layer had: seen in the plan, asked about, deleted only if they are the same still."""
    name = cluster.kubectl("get", "runtimeclass")["items"][0]["metadata"]["labels"]["ironspan.io/site"]
    mark = f"ironspan.io/site={name},ironspan.io/layer="

    def make(kind: str, *more: str, layer: str = "") -> None:
        where = ["-n", "default"] if kind == "configmap" else []
        cluster.kubectl("create", kind, "former", *more, *where)
        if layer:
            cluster.kubectl("label", kind, "former", *f"{mark}{layer}".split(","), *where)

    make("configmap", layer="egress")
    make("clusterrolebinding", "--clusterrole=view", "--group=entra:former", layer="identity")
    make("namespace")
    plan = cluster.folder / "former.plan.json"
    planned = cluster.command("plan", "-i", str(cluster.inventory), "-o", str(plan))
    assert planned.returncode == 0 and "--allow-destructive" in planned.stdout, planned.stdout
    lines = json.loads(plan.read_bytes())["plan"]["cluster"]["changes"]
    assert {line["name"]: line["loss"] for line in lines} == {
        "ConfigMap default/former": "",
        "ClusterRoleBinding former": "access",
    }
    shown = cluster.command("show", str(plan)).stdout
    assert "delete  ClusterRoleBinding former (its layer identity does not declare it any more)" in shown
    refused = cluster.command("apply", str(plan), "-i", str(cluster.inventory))
    assert refused.returncode == 2 and "ClusterRoleBinding former (access)" in refused.stdout, refused.stdout
    # Another one of the same name is not what was signed.
    cluster.on("az-1", "kubectl --kubeconfig /etc/kubernetes/admin.conf -n default delete configmap former")
    make("configmap", layer="egress")
    consent = ("apply", str(plan), "-i", str(cluster.inventory), "--allow-destructive")
    moved = cluster.command(*consent)
    assert moved.returncode == 1 and "ConfigMap default/former (deleted)" in moved.stdout, moved.stdout
    assert set(_former(cluster)) == {"configmap", "clusterrolebinding", "namespace"}
    done = cluster.site("-e", "ironspan_allow_destructive=true")
    assert done.status == 0, done.output[-6000:]
    assert _former(cluster) == ["namespace"]
    cluster.assert_settled()


def _former(cluster: Cluster) -> list[str]:
    kinds = ("configmap", "clusterrolebinding", "namespace")
    there = {kind: cluster.kubectl("get", kind, "-n", "default")["items"] for kind in kinds}
    return [kind for kind in kinds if "former" in [item["metadata"]["name"] for item in there[kind]]]


def test_certificates_are_listed_with_one_ssh_operation_a_host(cluster: Cluster) -> None:
    played = play("certs", cluster.inventory, cluster.folder)
    assert played.status == 0, played.output
    assert played.changed == {}
    assert played.ssh == {cluster.address(host): 1 for host in HOSTS}
    report = cluster.folder / "certificates.json"
    done = cluster.command("certs", "-i", str(cluster.inventory), "--days", "400", "--report", str(report))
    assert done.returncode == 1, done.stdout
    found = json.loads(report.read_text())
    assert found["problems"] == []
    places = {(entry["host"], entry["path"]) for entry in found["due"]}
    for member in ("az-1", "az-2", "az-3"):
        assert (member, "/etc/etcd/pki/server.crt") in places
    for node in NODES:
        assert (node, "/var/lib/kubelet/pki/kubelet-client-current.pem") in places
        assert (node, "/var/lib/kubelet/pki/kubelet-server-current.pem") in places
    for name in ("admin.conf", "controller-manager.conf", "scheduler.conf", "pki/apiserver.crt"):
        assert ("az-2", f"/etc/kubernetes/{name}") in places


def test_a_request_for_another_nodes_certificate_is_denied_and_named(cluster: Cluster) -> None:
    """A worker that was taken over asks, with its own credentials, for a certificate of its neighbour."""
    cluster.on(
        "rack-1",
        "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /run/taken.key "
        "-subj /O=system:nodes/CN=system:node:rack-1 -addext subjectAltName=DNS:rack-2,IP:"
        f"{cluster.address('rack-2')} -out /run/taken.csr 2>&1",
    )
    request = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "taken-over"},
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
            "request": cluster.on("rack-1", "base64 -w0 /run/taken.csr"),
        },
    }
    pair = "/var/lib/kubelet/pki/kubelet-client-current.pem"
    url = "https://api.lab.internal:8443/apis/certificates.k8s.io/v1/certificatesigningrequests"
    cluster.on(
        "rack-1",
        f"curl -sSf --cert {pair} --key {pair} --cacert /etc/kubernetes/pki/ca.crt "
        f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(request))} {url}",
    )
    done = cluster.command("certs", "approve", "-i", str(cluster.inventory))
    assert done.returncode == 1, done.stdout
    assert "rack-1: taken-over: The request of 'system:node:rack-1' is refused" in done.stdout
    decided = cluster.kubectl("get", "csr", "taken-over")
    assert [condition["type"] for condition in decided["status"]["conditions"]] == ["Denied"]
    assert "certificate" not in decided["status"]
    assert cluster.command("certs", "approve", "-i", str(cluster.inventory)).returncode == 0


def test_stages_of_an_authority_come_in_order(cluster: Cluster) -> None:
    """What the stages do to a running cluster is in test_authorities.py, which takes long."""
    for stage, words in (("issue", "cannot go to the stage issue"), ("next", "is not being changed")):
        done = cluster.command("certs", "rotate", "front-proxy", stage, "-i", str(cluster.inventory))
        assert done.returncode == 2, done.stdout
        assert words in done.stdout
    assert cluster.on("az-2", "grep -c BEGIN /etc/kubernetes/pki/front-proxy-ca.crt") == "1"


def test_an_interrupted_run_ends_at_once_and_the_next_one_is_whole(cluster: Cluster) -> None:
    running = subprocess.Popen(
        [str(BIN / "ironspan"), "apply", "-i", str(cluster.inventory), "--plain"],
        cwd=ROOT,
        env=os.environ | {"XDG_STATE_HOME": str(cluster.folder / "state")},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "Compare" in line or "Assess" in line:
            break
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 130, output
    assert cluster.site().changed == {}


def joining(host: LabHost) -> bool:
    """Tell whether kubeadm join runs on a host, seen from the machine outside."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"kubeadm") and b"join" in words:
                where = (process / "cgroup").read_text()
                if host.cgroup in where or host.machine in where:
                    return True
    return False


def test_a_join_survives_a_cut_of_the_link(cluster: Cluster) -> None:
    consent = f"ironspan_reset_site=lab-{cluster.lab.name}"
    reset = cluster.command(
        "apply", "reset", "-i", str(cluster.inventory), "--limit", "rack-2,localhost", "-e", consent
    )
    assert reset.returncode == 0, reset.stdout
    assert cluster.on("rack-2", "ls /etc/kubernetes/kubelet.conf", check=False) == ""

    seen = threading.Event()

    def cut() -> None:
        host = host_of(cluster, "rack-2")
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline:
            if joining(host):
                cluster.lab.link(cut=True)
                seen.set()
                time.sleep(CUT_S)
                cluster.lab.link(cut=False)
                return
            time.sleep(0.1)

    cutter = threading.Thread(target=cut)
    cutter.start()
    played = cluster.site()
    cutter.join()
    assert seen.is_set(), played.output
    if played.status != 0:
        played = cluster.site()
    assert played.status == 0, played.output
    cluster.wait_until_ready(NODES)
    assert cluster.site().changed == {}


FRONT = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "front", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "front"}},
                "template": {
                    "metadata": {"labels": {"app": "front"}},
                    "spec": {
                        # Nowhere else, so that a budget of one never gives way.
                        "nodeSelector": {"kubernetes.io/hostname": "rack-2"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [
                            {
                                "name": "front",
                                "image": "docker.io/library/busybox:1.37.0",
                                "command": ["sleep", "3600"],
                            }
                        ],
                    },
                },
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "front", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "front"}}},
        },
    ],
}
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"


def test_a_worker_is_removed_within_budgets_and_added_again(cluster: Cluster) -> None:
    cluster.on("az-1", f"{KUBECTL} apply -f - <<'EOF'\n{json.dumps(FRONT)}\nEOF")
    cluster.on("az-1", f"{KUBECTL} rollout status deployment/front --timeout=170s")
    worker = ["-e", "ironspan_hosts=rack-2"]
    options = [*worker, "-e", "site_drain_timeout_seconds=10", "-i", str(cluster.inventory)]

    refused = cluster.command("apply", "node_remove", *options)
    assert refused.returncode == 2, refused.stdout
    assert "--allow-destructive" in refused.stdout
    stuck = cluster.command("apply", "node_remove", *options, "--allow-destructive")
    assert stuck.returncode == 1, stuck.stdout
    assert "PodDisruptionBudget default/front allows no more (1 healthy, 1 needed" in stuck.stdout
    front = cluster.kubectl("get", "pods", "-l", "app=front")["items"]
    assert [(pod["spec"]["nodeName"], pod["status"]["phase"]) for pod in front] == [("rack-2", "Running")]
    assert cluster.kubectl("get", "node", "rack-2")["spec"]["unschedulable"] is True
    assert "rack-2" in cluster.ready_nodes()

    cluster.on("az-1", f"{KUBECTL} delete pdb front")
    file = cluster.folder / "remove.plan.json"
    planned = cluster.command("plan", "node_remove", *worker, "-i", str(cluster.inventory), "-o", str(file))
    assert planned.returncode == 0, planned.stdout
    plan = json.loads(file.read_text())["plan"]
    assert (plan["operation"], plan["arguments"]) == ("node_remove", {"ironspan_hosts": "rack-2"})
    assert {step["target"] for step in plan["steps"]} == {"rack-2"}
    without = cluster.command("apply", str(file), "-i", str(cluster.inventory))
    assert without.returncode == 2 and "--allow-destructive" in without.stdout, without.stdout
    consent = ("-e", "ironspan_allow_destructive=true", "-e", f"ironspan_plan={file}")
    other = play("node_remove", cluster.inventory, cluster.folder, "-e", "ironspan_hosts=rack-1", *consent)
    assert other.status == 2 and "the plan was made with -e ironspan_hosts=rack-2" in other.output
    cluster.wait_until_ready(NODES)

    only = {cluster.address("rack-2")}
    removed = play("node_remove", cluster.inventory, cluster.folder, *worker, *consent)
    assert removed.status == 0, removed.output
    assert "Take them out of the inventory now" in removed.output
    assert set(removed.ssh) == only
    cluster.wait_until_ready(NODES - {"rack-2"})
    assert cluster.on("rack-2", "ls /etc/kubernetes /usr/local/bin/kubelet", check=False) == ""

    added = play("node_add", cluster.inventory, cluster.folder, *worker)
    assert added.status == 0, added.output
    assert set(added.ssh) == only
    assert added.ssh.total() <= 5
    cluster.wait_until_ready(NODES)
    cluster.on("az-1", f"{KUBECTL} rollout status deployment/front --timeout=170s")
    cluster.on("az-1", f"{KUBECTL} delete deployment front")
    assert cluster.site().changed == {}


def test_a_dead_worker_gets_another_machine(cluster: Cluster) -> None:
    host = host_of(cluster, "rack-1")
    before = cluster.kubectl("get", "node", "rack-1")["metadata"]["uid"]
    running = cluster.command(
        "apply",
        "node_replace",
        "-e",
        "ironspan_hosts=rack-1",
        "--allow-destructive",
        "-i",
        str(cluster.inventory),
    )
    assert running.returncode == 2, running.stdout
    assert "its kubelet runs: rack-1" in running.stdout

    lab_host.stop(cluster.lab.folder, host, machine.detect())
    # What the node controller says in 50 s.
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = shlex.quote(json.dumps({"status": {"conditions": [lost]}}))
    cluster.on("az-1", f"{KUBECTL} patch node rack-1 --subresource=status --type=strategic -p {patch}")
    own = lab_host.folder(cluster.lab.folder, host)
    mounts.unmount_below(own / "root")
    for name in ("upper", "work", *lab_host.DATA):
        shutil.rmtree(own / name)
    (own / "prepared").unlink()
    cluster.lab.up(azure=3, rack=2)

    taken_host.watch_the_join(cluster, "rack-1")
    replaced = play(
        "node_replace", cluster.inventory, cluster.folder, "-e", "ironspan_hosts=rack-1",
        "-e", "ironspan_allow_destructive=true",
    )  # fmt: skip
    assert replaced.status == 0, replaced.output
    assert set(replaced.ssh) == {cluster.address("rack-1")}
    assert cluster.kubectl("get", "node", "rack-1")["metadata"]["uid"] != before
    cluster.wait_until_ready(NODES)
    assert (
        cluster.on("az-1", f"{KUBECTL} -n kube-system get cm ironspan-node-replacements", check=False) == ""
    )
    assert cluster.site().changed == {}


def test_root_of_a_worker_cannot_become_another_node(cluster: Cluster) -> None:
    """With what rack-1 held while it joined, in the test before, and what it holds now."""
    taken_host.cannot_become_another(cluster, "rack-1", ("rack-2", "az-1"))


def test_secrets_that_a_node_reads_are_in_the_audit_log(cluster: Cluster) -> None:
    taken_host.reads_of_secrets_are_in_the_audit_log(cluster, "rack-1")


def test_a_member_that_lost_its_disk_is_refused_and_then_replaced(cluster: Cluster) -> None:
    member_cases.an_empty_disk_is_refused_by_site_and_fixed_by_a_replacement(cluster)
