# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer etcd_backup on a real host: real systemd, real etcd, a folder as the store."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
import time
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

UNIT = "ironspan-etcd-backup"
PROGRAM = f"/opt/ironspan/etcd-backup/bin/{UNIT}"
PLAY = """\
- ansible.builtin.import_playbook: {root}/playbooks/validate.yml
  vars: {{__ironspan_purpose: apply}}
- ansible.builtin.import_playbook: {root}/playbooks/assess.yml
- ansible.builtin.import_playbook: {root}/playbooks/prepare.yml
  vars: {{__ironspan_scope: ":&etcd:&__ironspan_pending"}}
- ansible.builtin.import_playbook: {root}/playbooks/etcd.yml
  vars: {{__ironspan_scope: ":&__ironspan_pending_etcd"}}
- ansible.builtin.import_playbook: {root}/playbooks/etcd_backup.yml
  vars: {{__ironspan_scope: ":&__ironspan_pending_etcd_backup"}}
"""
ACCEPT = ROOT / "playbooks/backup_accept.yml"
GUARD_SECONDS = 10
"""The agent looks every two seconds, and four seconds long at what is wrong."""
STORES = [{"kind": "file", "path": "/srv/etcd-backup"}]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Cluster]:
    """Two hosts, and a store of one member on the first."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    made = Cluster(Lab(lab_name("irole")), pathlib.Path(tempfile.mkdtemp(prefix="isr-", dir="/tmp")))
    (made.folder / "play.yml").write_text(PLAY.format(root=ROOT))
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        assert converged(made).status == 0
        yield made
    finally:
        made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def variables(stores: t.Any = STORES) -> str:
    """Return the variables of a run for backups to these stores; None leaves them to the inventory."""
    told = {} if stores is None else {"etcd_backup_stores": stores}
    return json.dumps({"etcd_backup_drill_after_snapshot": False, **told})


def converged(hosts: Cluster, stores: t.Any = STORES, options: t.Sequence[str] = ()) -> Played:
    """Bring the store and its backup to what the inventory and these options of ansible-playbook say."""
    told = ("-e", variables(stores), *options)
    done = play(str(hosts.folder / "play.yml"), hosts.inventory, hosts.folder, *told)
    assert done.status == 0, done.output
    return done


def snapshots(hosts: Cluster) -> list[dict[str, t.Any]]:
    """Return the snapshots in the backup, when there is one at least."""
    until = time.monotonic() + 180
    while True:
        (store,) = json.loads(hosts.on("az-1", f"{PROGRAM} list --json"))["stores"]
        if store["snapshots"] or time.monotonic() > until:
            return list(store["snapshots"])
        time.sleep(0.5)


def of(hosts: Cluster) -> str:
    """Return the folder of the site's backups."""
    return f"/srv/etcd-backup/lab-{hosts.lab.name}"


def restarts(hosts: Cluster) -> tuple[str, str]:
    """Return which process the agent is, and how often systemd had to start it again."""
    shown = hosts.on("az-1", f"systemctl show {UNIT} -p MainPID -p NRestarts --value").split()
    return shown[0], shown[1]


def test_the_agent_writes_and_a_second_run_changes_nothing(hosts: Cluster) -> None:
    assert hosts.on("az-1", f"systemctl is-active {UNIT}") == "active"
    assert snapshots(hosts)
    assert hosts.on("az-1", f"ls {of(hosts)}/recovery"), "the PKI store lies beside the backups"
    assert restarts(hosts)[1] == "0"
    before = restarts(hosts)
    again = converged(hosts)
    assert again.recap["az-1"]["changed"] == 0
    assert restarts(hosts) == before


def test_nobody_else_reads_keys_and_backups(hosts: Cluster) -> None:
    for path in (
        "/etc/ironspan/etcd-backup/keys/1.key",
        "/etc/ironspan/etcd-backup/signing/writer-1.key",
        "/etc/ironspan/etcd-backup.json",
        "/srv/etcd-backup",
    ):
        shown = hosts.on("az-1", f"runuser -u nobody -- ls {path}/ || stat -c %a {path}", check=False)
        assert shown.splitlines()[-1] in ("600", "700"), path
    key = hosts.on("az-1", "cat /etc/ironspan/etcd-backup/keys/1.key")
    assert key not in hosts.on("az-1", f"cat /var/lib/ironspan/*.json; journalctl -u {UNIT}; ps axww")


def test_another_key_is_used_from_then_on(hosts: Cluster) -> None:
    text = hosts.inventory.read_text()
    store, key = (
        line.split(": ", 1)[1]
        for name in ("site_pki_store", "site_pki_key_file")
        for line in text.splitlines()
        if line.strip().startswith(name)
    )
    opened = open_store(store, key)
    assert opened.backup_keys.add() == 2
    before = restarts(hosts)
    assert converged(hosts).recap["az-1"]["changed"] > 0
    assert restarts(hosts)[0] != before[0]
    hosts.on("az-1", f"{PROGRAM} snapshot")
    assert len(hosts.on("az-1", f"ls {of(hosts)}/recovery").split()) == 2
    manifests = hosts.on("az-1", f"cat $(ls -d {of(hosts)}/e*/snapshots/*/manifest.json | tail -n 1)")
    assert json.loads(manifests)["key_version"] == "2"
    assert json.loads(manifests)["signer"] == "2"
    signs = hosts.on("az-1", "ls /etc/ironspan/etcd-backup/signing").split()
    assert signs == ["drill-2.key", "writer-2.key"]


def test_a_killed_agent_comes_back(hosts: Cluster) -> None:
    process, _ = restarts(hosts)
    hosts.on("az-1", f"kill -9 {process}")
    until = time.monotonic() + 180
    while hosts.on("az-1", f"systemctl is-active {UNIT}", check=False) != "active":
        assert time.monotonic() < until
        time.sleep(0.5)
    assert restarts(hosts)[0] != process


def test_former_data_that_are_put_back_are_closed(hosts: Cluster) -> None:
    converged(hosts)
    (folder,) = hosts.on("az-1", "ls -d /var/lib/etcd/*/member").split()
    data, copy = folder.rpartition("/")[0], "/var/lib/etcd/copy"
    hosts.on("az-1", f"systemctl stop etcd; cp -a {data} {copy}; systemctl start etcd")
    put = "set -a; . /etc/etcd/etcdctl.env; for n in 1 2 3 4 5; do etcdctl put /registry/k $n; done"
    hosts.on("az-1", put)
    reached = "curl -s 127.0.0.1:2384/metrics | grep -E '^ironspan_etcd_backup_(log|seen)_revision'"
    until = time.monotonic() + 180
    while True:
        found = {line.split()[1] for line in hosts.on("az-1", reached, check=False).splitlines()}
        revision = hosts.on("az-1", "set -a; . /etc/etcd/etcdctl.env; etcdctl endpoint status -w fields")
        if len(found) == 1 and f'"Revision" : {float(found.pop()):.0f}\n' in revision:
            break
        assert time.monotonic() < until, (found, revision)
        time.sleep(0.5)
    hosts.on("az-1", f"systemctl stop etcd; rm -r {data}; mv {copy} {data}; systemctl start etcd")
    while hosts.on("az-1", "systemctl is-active etcd", check=False) == "active":
        assert time.monotonic() < until + 60
        time.sleep(0.5)
    assert "older than its backup" in hosts.on("az-1", "cat /var/lib/ironspan/etcd-backup/closed.json")
    hosts.on("az-1", "systemctl start etcd")
    assert hosts.on("az-1", "systemctl is-active etcd", check=False) == "inactive", "nor after a reboot"
    again = play(str(hosts.folder / "play.yml"), hosts.inventory, hosts.folder, "-e", variables())
    assert again.status != 0
    assert "etcd-backup/closed.json" in again.output, "nor by site.yml, which says why"
    refused = play(str(ACCEPT), hosts.inventory, hosts.folder)
    assert refused.status != 0
    assert "--allow-destructive" in refused.output
    done = play(str(ACCEPT), hosts.inventory, hosts.folder, "-e", "ironspan_allow_destructive=true")
    assert done.status == 0, done.output
    assert hosts.on("az-1", "systemctl is-active etcd") == "active"
    assert converged(hosts).recap["az-1"]["changed"] == 0
    (store,) = json.loads(hosts.on("az-1", f"{PROGRAM} list --json"))["stores"]
    assert [epoch["epoch"] for epoch in store["epochs"]] == [1, 2]
    time.sleep(GUARD_SECONDS)
    assert hosts.on("az-1", "systemctl is-active etcd") == "active", "the consent holds"


def test_a_host_that_is_no_member_proves_and_collects(hosts: Cluster) -> None:
    converged(hosts)
    snapshots(hosts)
    helpers = hosts.folder / "helpers.yml"
    helpers.write_text(
        "all: {children: {etcd_drill: {hosts: {rack-1: }}, etcd_collector: {hosts: {rack-1: }}}}\n"
    )
    more = ("-i", str(helpers), "-e", json.dumps({"etcd_backup_drill_memory_bytes": 512 << 20}))
    converged(hosts, options=more)
    again = converged(hosts, options=more).recap
    assert (again["az-1"]["changed"], again["rack-1"]["changed"]) == (0, 0)
    # What a shared folder would show on that host too.
    packed = hosts.on("az-1", "tar -C /srv -cz etcd-backup | base64 -w0")
    # One argument of a program holds 128 KiB.
    for start in range(0, len(packed), 60_000):
        hosts.on("rack-1", f"echo {packed[start : start + 60_000]} >> /srv/packed")
    hosts.on("rack-1", "base64 -d /srv/packed | tar -C /srv -xz")
    assert "drill" in hosts.on("rack-1", "systemctl list-timers --no-legend ironspan-etcd-backup-drill.timer")
    hosts.on("rack-1", "systemctl start ironspan-etcd-backup-drill")
    (store,) = json.loads(hosts.on("rack-1", f"{PROGRAM} list --json"))["stores"]
    assert store["snapshots"][-1]["verified"] is True, hosts.on(
        "rack-1", "journalctl -u ironspan-etcd-backup-drill"
    )
    said = hosts.on("rack-1", "journalctl -u ironspan-etcd-backup-drill")
    assert "Drill of snapshot" in said
    assert "without limits" not in said
    limit = hosts.on("rack-1", "systemctl show -P MemoryMax ironspan-etcd-backup-drill")
    assert int(limit) == (512 << 20) + (512 << 20)
    hosts.on("rack-1", "systemctl start ironspan-etcd-backup-gc")
    collected = hosts.on("rack-1", "journalctl -u ironspan-etcd-backup-gc")
    assert "snapshots stay" in collected
    assert "damaged" not in collected
    assert hosts.on("rack-1", "ls /etc/ironspan/etcd-backup/signing").split() == ["drill-2.key"]
    assert hosts.on("rack-1", "ls /etc/etcd /etc/ironspan/etcd-backup/recovery.bundle", check=False) == ""
    off = {"vars": {"etcd_backup_stores": STORES}, "hosts": {"rack-1": {"etcd_backup_stores": []}}}
    (hosts.folder / "off.yml").write_text(json.dumps({"all": off}))
    converged(hosts, stores=None, options=(*more, "-i", str(hosts.folder / "off.yml")))
    assert hosts.on("rack-1", "ls /etc/systemd/system | grep -c ironspan-etcd-backup || true") == "0"


def test_without_a_store_the_agent_goes_and_the_backups_stay(hosts: Cluster) -> None:
    count = len(snapshots(hosts))
    converged(hosts, stores=[])
    ended = hosts.on("az-1", f"systemctl is-active {UNIT}", check=False)
    assert ended == "inactive", hosts.on(
        "az-1", f"journalctl -n 40 -u {UNIT}; systemctl show {UNIT} | grep Result"
    )
    assert hosts.on("az-1", f"ls /etc/systemd/system | grep -c {UNIT} || true") == "0"
    assert converged(hosts, stores=[]).recap["az-1"]["changed"] == 0
    converged(hosts)
    assert len(snapshots(hosts)) >= count
