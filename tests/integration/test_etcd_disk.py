# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer etcd_disk on a real host: a block device (a loop device of the machine), real systemd and etcd.

What is not real: hosts of the lab have no udev, so the links below /dev/disk are made by hand, and systemd is
told by a read-only /sys, as in any container, that it waits for no device. Their tree is smaller than any
distribution's, so they get this machine's e2fsprogs.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import to_uuid

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.faults import insist
from tests.support.playbooks import ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

DEVICE = "/dev/disk/by-id/etcd"
POINT, UNIT = "/var/lib/etcd", "var-lib-etcd.mount"
TOOLS = ("mkfs.ext4", "tune2fs", "e2fsck")
PLAY = """\
- ansible.builtin.import_playbook: {root}/playbooks/validate.yml
  vars: {{__ironspan_purpose: apply}}
- ansible.builtin.import_playbook: {root}/playbooks/assess.yml
- ansible.builtin.import_playbook: {root}/playbooks/prepare.yml
  vars: {{__ironspan_scope: ":&etcd:&__ironspan_pending"}}
- ansible.builtin.import_playbook: {root}/playbooks/etcd.yml
  vars: {{__ironspan_scope: ":&__ironspan_pending_etcd"}}
- ansible.builtin.import_playbook: {root}/playbooks/etcd_events.yml
  vars: {{__ironspan_scope: ":&__ironspan_pending_etcd_events"}}
"""
# The disk is shared by all that runs here: that it is measured is seen, how fast it is proves nothing.
VARIABLES = {"etcd_disk_devices": [DEVICE], "etcd_disk_fdatasync_ms": 1000}


class Site(Cluster):
    """Two hosts, and a disk for the member of etcd on the first."""

    loop: str = ""

    def converged(self, *options: str, **more: t.Any) -> Played:
        """Run the phases up to etcd."""
        told = ("-e", json.dumps(VARIABLES | more), *options)
        return play(str(self.folder / "play.yml"), self.inventory, self.folder, *told)

    def name_disk(self) -> None:
        """Do what udev would: give the disk its names, the one by UUID too."""
        minor = self.loop.removeprefix("/dev/loop")
        by_uuid = f"/dev/disk/by-uuid/{self.uuid()}"
        self.on(
            "az-1",
            f"mkdir -p /dev/disk/by-id /dev/disk/by-uuid; mknod -m 600 {self.loop} b 7 {minor} || true",
        )
        self.on("az-1", f"ln -sfn {self.loop} {DEVICE}; ln -sfn {self.loop} {by_uuid}")

    def bring_tools(self) -> None:
        """Copy e2fsprogs with the libraries that the host does not have."""
        programs = [str(shutil.which(tool)) for tool in TOOLS]
        linked = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout.split()
        files = [
            *programs,
            *sorted(path for path in set(linked) if "/libe2p." in path or "/libext2fs." in path),
        ]
        packed = ["tar", "-ch", "--transform=s,^/lib/,usr/lib/,;s,^/sbin/,usr/sbin/,", "-P", *files]
        archive = subprocess.run(packed, check=True, capture_output=True).stdout
        unpack = self.lab.ssh_command("az-1", ["tar", "-x", "-P", "-C", "/"])
        subprocess.run(unpack, input=archive, check=True, capture_output=True)

    def uuid(self) -> str:
        """Return the UUID that the member's file system has."""
        name = re.search(r"site_name: (\S+)", self.inventory.read_text())
        return to_uuid(f"{name and name[1]}/etcd/az-1")

    def state(self, unit: str) -> str:
        """Return whether a unit of the first host is active."""
        return self.on("az-1", f"systemctl is-active {unit}", check=False)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The hosts, with the disk attached and nothing installed."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isd-", dir="/tmp"))
    made = Site(Lab(lab_name("edisk")), folder)
    (folder / "play.yml").write_text(PLAY.format(root=ROOT))
    with (folder / "disk").open("wb") as stream:
        stream.truncate(1 << 30)
    attach = ["losetup", "--find", "--show", str(folder / "disk")]
    made.loop = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        # The lab mounts a folder of the machine there, which stands for a disk as a rule.
        made.on("az-1", f"umount {POINT}")
        made.on("az-1", "mount -o remount,bind,ro /sys && systemctl daemon-reexec")
        made.bring_tools()
        yield made
    finally:
        made.lab.down()
        subprocess.run(["losetup", "--detach", made.loop], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def test_without_its_disk_nothing_is_installed(site: Site) -> None:
    done = site.converged()
    assert done.status != 0 and f"there is no disk at {DEVICE}" in done.output
    insist("etcd-disk-missing", done.output)
    assert site.on("az-1", f"find {POINT} /usr/local/bin/etcd -type f", check=False) == ""


def test_a_blank_disk_is_made_mounted_and_measured_and_etcd_lives_on_it(site: Site) -> None:
    # The PKI store, whose site the UUID is of, is made by the run before.
    site.name_disk()
    checked = site.converged("--check", "--diff")
    assert checked.status == 0 and "the disk is blank" in checked.output, checked.output[-4000:]
    assert site.on("az-1", f"blkid -p {DEVICE}", check=False) == ""
    done = site.converged()
    assert done.status == 0, done.output[-6000:]
    assert site.on("az-1", f"findmnt -n -o SOURCE,FSTYPE {POINT}").split() == [site.loop, "ext4"]
    assert "noatime" in site.on("az-1", f"findmnt -n -o OPTIONS {POINT}")
    assert site.on("az-1", f"ls -d {POINT}/*/member/wal") and site.state("etcd") == "active"
    noted = json.loads(site.on("az-1", "cat /var/lib/ironspan/state.json"))["notes"]
    assert noted["etcd_disk/latency"]["p99_ms"] > 0


def test_a_second_run_changes_nothing(site: Site) -> None:
    done = site.converged()
    assert done.status == 0 and done.recap["az-1"]["changed"] == 0, done.output[-4000:]


def test_without_the_mount_etcd_neither_runs_nor_starts(site: Site) -> None:
    site.on("az-1", f"rm /dev/disk/by-uuid/*; systemctl stop {UNIT}")
    assert site.state("etcd") != "active"
    assert "Dependency failed" in site.on(
        "az-1", "systemctl start etcd 2>&1 || journalctl -n 30 -o cat", check=False
    )
    assert site.state("etcd") != "active"
    # Nothing was written to the disk of the operating system.
    assert site.on("az-1", f"ls {POINT}") == ""


def test_the_next_run_mounts_it_and_the_member_goes_on_with_its_data(site: Site) -> None:
    before = site.on("az-1", "cat /etc/etcd/etcd.yaml")
    site.name_disk()
    done = site.converged()
    assert done.status == 0, done.output[-6000:]
    assert site.state("etcd") == "active" and site.on("az-1", "cat /etc/etcd/etcd.yaml") == before


def test_a_foreign_disk_is_refused_and_stays(site: Site) -> None:
    site.on("az-1", f"systemctl stop {UNIT}; e2fsck -fp {DEVICE}; tune2fs -U random {DEVICE}")
    before = site.on("az-1", f"blkid -p {DEVICE}")
    done = site.converged()
    assert done.status != 0
    insist("etcd-disk-foreign", done.output)
    assert site.on("az-1", f"blkid -p {DEVICE}") == before
    # What the message says.
    site.on("az-1", f"e2fsck -f -p {DEVICE}; tune2fs -U {site.uuid()} {DEVICE}")
    assert site.converged().status == 0 and site.state("etcd") == "active"


def test_events_are_on_the_same_disk_and_not_without_it(site: Site) -> None:
    done = site.converged(etcd_events_enabled=True)
    assert done.status == 0, done.output[-6000:]
    assert site.on("az-1", f"ls -d {POINT}/events/*/member/wal") and site.state("etcd-events") == "active"
    assert site.on("az-1", "ls /var/lib/etcd-events", check=False) == ""
    site.on("az-1", f"rm /dev/disk/by-uuid/*; systemctl stop {UNIT}")
    site.on("az-1", "systemctl start etcd-events", check=False)
    assert site.state("etcd-events") != "active" and site.on("az-1", f"ls {POINT}") == ""
    site.name_disk()
    done = site.converged(etcd_events_enabled=True)
    assert done.status == 0 and site.state("etcd-events") == "active", done.output[-4000:]
    again = site.converged(etcd_events_enabled=True)
    assert again.status == 0 and again.recap["az-1"]["changed"] == 0, again.output[-4000:]


def test_a_disk_that_is_blank_again_begins_no_new_store(site: Site) -> None:
    """As a local disk after a deallocation; there is no other member that could say that it is one."""
    site.on("az-1", f"systemctl stop {UNIT}; dd if=/dev/zero of={DEVICE} bs=1M status=none || true")
    done = site.converged()
    assert done.status != 0, done.output[-4000:]
    insist("etcd-disk-blank", done.output)
    assert site.state("etcd") != "active"
