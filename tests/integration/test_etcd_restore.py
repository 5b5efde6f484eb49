# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store of a whole small cluster is lost and restored by one command; pods on its nodes run on.

A stand-in for the backup program delivers a snapshot that etcdctl took before: what is tested here is all
that happens around it.
"""

from __future__ import annotations

import collections.abc
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import textwrap
import time
import typing as t

import pytest

from tests.integration.conftest import Cluster, lab_cluster
from tests.support.playbooks import BIN, ROOT
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long]

MEMBERS = ("az-1", "az-2", "az-3")
CONSENT = ("-e", "ironspan_allow_destructive=true")
PROGRAM = textwrap.dedent(
    """\
    #!/usr/bin/python3
    import json, os, shutil, sys
    verb, options, home = sys.argv[1], sys.argv[2:], "/root/backup"
    if verb == "rebuild":
        folder = options[options.index("--output") + 1]
        os.makedirs(folder, exist_ok=True)
        shutil.copy(f"{home}/snapshot.db", f"{folder}/restored.db")
        shutil.copy(f"{home}/facts.json", f"{folder}/facts.json")
    else:
        with open(f"{home}/epochs", "a") as epochs:
            epochs.write(" ".join(options) + "\\n")
    print(json.dumps({}))
    """
)
ETCDCTL = "set -a; . /etc/etcd/etcdctl.env; etcdctl"
STOP = "Stop the API server, the controllers and etcd, rename its data, and rebuild it on one host"
LOSE = "systemctl kill -s KILL etcd; rm -rf /var/lib/etcd/*/member"


class Restored(Cluster):
    """A cluster with a stand-in for the backup program on each host of the store."""

    def restore(self, *options: str, playbook: str = "etcd_restore") -> subprocess.CompletedProcess[str]:
        return self.command("apply", playbook, "-i", str(self.inventory), *options)

    def etcdctl(self, arguments: str, host: str = "az-1") -> str:
        return self.on(host, f"{ETCDCTL} {arguments}")

    def backup(self) -> int:
        """Take a snapshot as the backup's newest; returns its revision."""
        for host in MEMBERS:
            self.on(host, "rm -rf /root/backup; mkdir -p /root/backup")
        status = json.loads(self.etcdctl("endpoint status -w json"))[0]["Status"]
        self.etcdctl("snapshot save /root/backup/snapshot.db")
        # Not the member's: kubelets have written since.
        snapshot = self.on("az-1", "etcdutl snapshot status -w json /root/backup/snapshot.db")
        revision = int(json.loads(snapshot)["revision"])
        facts = {
            "revision": revision,
            "last_seen_revision": revision,
            "bump": 0,
            "cluster_id": f"{status['header']['cluster_id']:x}",
            "epoch": 1,
            "snapshot": "the-newest",
            "objects": 0,
        }
        # By way of this machine: the hosts do not trust each other.
        file = self.folder / "snapshot.db"
        file.write_bytes(
            subprocess.check_output(self.lab.ssh_command("az-1", ["cat /root/backup/snapshot.db"]))
        )
        for host in MEMBERS:
            self.put(host, "/root/backup/snapshot.db", file.read_bytes())
            self.put(host, "/root/backup/facts.json", json.dumps(facts).encode())
            self.install_program(host)
        return revision

    def install_program(self, host: str) -> None:
        folder = "/opt/ironspan/etcd-backup/bin"
        self.on(host, f"mkdir -p {folder}")
        self.put(host, f"{folder}/ironspan-etcd-backup", PROGRAM.encode())
        self.on(host, f"chmod 0755 {folder}/ironspan-etcd-backup")

    def put(self, host: str, path: str, content: bytes) -> None:
        subprocess.run(self.lab.ssh_command(host, [f"cat > {path}"]), input=content, check=True, timeout=60)

    def lose(self, *hosts: str) -> None:
        for host in hosts:
            self.on(host, LOSE)

    def containers(self, host: str) -> set[str]:
        """Return the containers that run on a host."""
        found = self.on(host, "crictl ps -q 2>/dev/null || ctr -n k8s.io tasks ls -q")
        return set(found.split())

    def insist_on_rest(self) -> None:
        """Wait until no pod comes or goes any more: the last ones of a new cluster do after its first run."""
        self.on(
            "az-1",
            "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system "
            "rollout status deployment/coredns --timeout=120s",
        )
        until(lambda: all(at_rest(pod) for pod in self.kubectl("get", "pods", "-A")["items"]))

    def record(self, name: str, value: str) -> None:
        """Write a ConfigMap, whose value tells which moment of the cluster is served."""
        self.on(
            "az-1",
            "kubectl --kubeconfig /etc/kubernetes/admin.conf create configmap "
            f"{name} --from-literal=value={shlex.quote(value)} --dry-run=client -o yaml | "
            "kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -",
        )

    def recorded(self, name: str) -> str:
        return str(self.kubectl("get", "configmap", name)["data"]["value"])

    def asides(self, host: str) -> list[str]:
        return self.on(host, "ls -d /var/lib/etcd/*.before-* 2>/dev/null || true").split()

    def insist_on_health(self) -> None:
        """Insist on three members that answer; under load one may take longer than etcdctl waits."""
        until(lambda: self.healthy() == [True, True, True])

    def healthy(self) -> list[bool]:
        answer = self.on("az-1", f"{ETCDCTL} endpoint health --cluster -w json", check=False)
        return [bool(member["health"]) for member in json.loads(answer)]


def at_rest(pod: dict[str, t.Any]) -> bool:
    """Tell whether a pod runs, is ready, and is not being deleted."""
    ready = [one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == "Ready"]
    return ready == ["True"] and "deletionTimestamp" not in pod["metadata"]


@contextlib.contextmanager
def restored(name: str, **size: t.Any) -> collections.abc.Iterator[Restored]:
    """Bring up a lab whose store will be lost."""
    with lab_cluster(Restored, name, azure=3, rack=1, **size) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output
        yield made


@pytest.fixture(scope="module")
def site() -> collections.abc.Iterator[Restored]:
    with restored("irestore") as made:
        yield made


def words(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stdout.split())


def test_what_is_refused_touches_nothing(site: Restored) -> None:
    site.backup()
    before = [site.on(host, "systemctl show -p MainPID --value etcd") for host in MEMBERS]
    for options, says in (
        ((), "etcd has its quorum (3 members, 2 needed, 3 healthy)"),
        (("-e", "ironspan_point=yesterday", *CONSENT), "write latest, time:2026-11-22T02:00:00Z"),
        (("-e", "ironspan_force_restore=true"), "this cannot be undone: stop etcd on"),
        (("-e", "ironspan_hosts=rack-1", *CONSENT), "name the one host"),
    ):
        refused = site.restore(*options)
        assert refused.returncode == 2, refused.stdout
        assert says in words(refused)
    assert [site.on(host, "systemctl show -p MainPID --value etcd") for host in MEMBERS] == before
    assert site.asides("az-1") == []


def test_all_members_lost(site: Restored) -> None:
    site.record("moment", "before")
    site.insist_on_rest()
    revision = site.backup()
    pods = site.containers("rack-1")
    site.record("moment", "lost")
    site.lose(*MEMBERS)
    page = site.command("doctor", "-i", str(site.inventory), "--plain").stdout
    assert "etcd: az-1, az-2, az-3: has lost its data, as 3 of 3 members: etcd cannot go on" in page
    # Nothing sends to site.yml, which refuses members without data.
    remedies = {line.strip() for line in page.splitlines() if line.startswith("    -> ironspan apply ")}
    restore = ["apply", "-i", str(site.inventory), "etcd_restore", "--allow-destructive"]
    assert remedies == {f"-> ironspan {shlex.join(restore)}"}, page
    began = time.monotonic()
    done = site.command(*restore)
    print(f"restored in {time.monotonic() - began:.1f} s\n{done.stdout}")
    assert done.returncode == 0, done.stdout
    assert site.recorded("moment") == "before"
    site.insist_on_health()
    assert site.containers("rack-1") == pods
    status = json.loads(site.etcdctl("endpoint status -w json"))[0]["Status"]["header"]
    assert int(status["revision"]) > revision + 1_000_000_000
    epochs = site.on("az-1", "cat /root/backup/epochs").splitlines()
    assert len(epochs) == 1
    assert f"--cluster-id={status['cluster_id']:x} --snapshot=the-newest --revision={revision}" in epochs[0]
    # API servers that live wrote their addresses again; no others are there.
    leases = site.etcdctl("get --prefix --keys-only /registry/masterleases/").split()
    assert len(leases) == 2
    again = site.restore(*CONSENT)
    assert again.returncode == 2
    assert "so nothing has to be restored" in words(again)
    assert site.site().changed == {}


def test_two_members_lost(site: Restored) -> None:
    """The one that is left has what was written after the backup."""
    site.record("moment", "in the backup")
    site.backup()
    site.record("moment", "after the backup")
    time.sleep(1)
    before = set(site.asides("az-3"))
    site.lose("az-1", "az-2")
    done = site.restore(*CONSENT)
    assert done.returncode == 0, done.stdout
    assert site.recorded("moment") == "after the backup"
    site.insist_on_health()
    (aside,) = set(site.asides("az-3")) - before
    assert site.on("az-3", f"ls {aside}/member") == "snap\nwal"
    assert site.site().changed == {}


@pytest.mark.parametrize(
    ("task", "seconds"),
    [
        (STOP, 0.5),
        (STOP, 2),
        ("Open it to the other hosts, and start the API servers, then the controllers", 1),
        ("Start the member", None),
        ("Promote it when it is in sync", 1),
    ],
)
def test_killed_and_run_again(site: Restored, task: str, seconds: float | None) -> None:
    site.record("moment", "before")
    site.backup()
    site.lose(*MEMBERS)
    kill_at(site, task, seconds)
    done = site.restore(*CONSENT)
    assert done.returncode == 0, done.stdout
    assert site.recorded("moment") == "before"
    site.insist_on_health()
    assert site.on("az-1", "ls /etc/systemd/system/etcd.service.d 2>/dev/null || true") == ""


def kill_at(site: Restored, task: str, seconds: float | None) -> None:
    """Run the restore and kill its processes so many seconds after a task has begun, or None: as it ends."""
    process = subprocess.Popen(
        [str(BIN / "ansible-playbook"), "-i", str(site.inventory), *CONSENT, "playbooks/etcd_restore.yml"],
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "ANSIBLE_STDOUT_CALLBACK": "default"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if re.match(rf"TASK \[{re.escape(task)}\]", line):
            if seconds is None:
                next(line for line in process.stdout if re.match(r"(ok|changed): \[", line))
            else:
                time.sleep(seconds)
            break
    else:
        pytest.fail(f"there was no task {task!r}:\n{''.join(seen)}")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_to_an_earlier_point_and_back(site: Restored) -> None:
    """What undoes a wrong restore: the data that were set aside serve again."""
    site.record("moment", "early")
    site.backup()
    site.record("moment", "late")
    before = set(site.asides("az-1"))
    done = site.restore(*CONSENT, "-e", "ironspan_force_restore=true", "-e", "ironspan_source=backup")
    assert done.returncode == 0, done.stdout
    assert site.recorded("moment") == "early"
    aside = (set(site.asides("az-1")) - before).pop()
    # docs/restore.md, "A restore that was wrong".
    for host in MEMBERS:
        site.on(host, "systemctl stop etcd")
    swap = f"uid=$(ls | grep -v '[.]'); mv $uid $uid.wrong; cp -a {aside} $uid"
    site.on("az-1", f"cd /var/lib/etcd; {swap}")
    for host in MEMBERS[1:]:
        site.on(host, "rm -rf /var/lib/etcd/*/member")
    done = site.restore(*CONSENT, "-e", "ironspan_source=survivor")
    assert done.returncode == 0, done.stdout
    assert site.recorded("moment") == "late"
    site.insist_on_health()
