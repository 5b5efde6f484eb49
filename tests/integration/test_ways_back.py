# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host that a change has cut off comes back by itself: real systemd, real SSH, no controller."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import play
from tests.support.waiting import until

pytestmark = pytest.mark.lab

HOST = "rack-1"
CONFIGURATION = "/etc/ssh/sshd_config.d/99-test.conf"
WRONG = "Port 2222"
PLAY = """\
- hosts: rack-1
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        document:
          schema: 1
          site: {site}
          host: rack-1
          layers: [base]
          resources:
            - {{kind: file, id: base/sshd, path: {path}, content: "{text}\\n"}}
            - {{kind: systemd_unit, id: base/ssh, name: ssh, restart_on: [base/sshd]}}
        trial: {trial}
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Cluster]:
    """Two hosts without a cluster."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    kept = os.environ.get("IRONSPAN_TEST_TINY_LAB")
    made = Cluster(Lab(kept or lab_name("iback")), pathlib.Path(tempfile.mkdtemp(prefix="isb-", dir="/tmp")))
    try:
        made.lab.up(azure=1, rack=1)
        yield made
    finally:
        if not kept:
            made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def apply(hosts: Cluster, text: str, seconds: int = 0, trial: str = "t") -> None:
    """Give sshd a line of configuration, on trial or not."""
    file = hosts.folder / "play.yml"
    given = f"{{id: {trial}, seconds: {seconds}}}" if seconds else "{}"
    site = f"lab-{hosts.lab.name}"
    file.write_text(PLAY.format(site=site, path=CONFIGURATION, text=text, trial=given))
    done = play(str(file), hosts.inventory, hosts.folder)
    assert done.status == 0, done.output


def answers(hosts: Cluster) -> bool:
    """Tell whether the host takes a new connection."""
    command = hosts.lab.ssh_command(HOST, ["true"])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
    return done.returncode == 0


def comes_back(hosts: Cluster, within: float) -> float:
    """Wait until the host takes connections again; return after how many seconds."""
    began = time.monotonic()
    while not answers(hosts):
        assert time.monotonic() < began + within, f"{HOST} has not come back after {within} s"
        time.sleep(0.5)
    return time.monotonic() - began


def configuration(hosts: Cluster) -> str:
    """Return what sshd was told; nothing while it restarts."""
    return hosts.on(HOST, f"cat {CONFIGURATION}", check=False)


def is_over(hosts: Cluster) -> bool:
    """Tell whether nothing of a trial is left; what undoes it ends with that, and restarts sshd before."""
    return hosts.on(HOST, "ls /etc/systemd/system | grep -c ironspan-revert || true", check=False) == "0"


def test_a_host_that_is_cut_off_comes_back_by_itself(hosts: Cluster) -> None:
    hosts.on(HOST, "mkdir -p /var/lib/ironspan && mount -t tmpfs -o size=24m tmpfs /var/lib/ironspan")
    apply(hosts, "# first")
    apply(hosts, WRONG, seconds=60)
    # What came with the change is still connected to the former sshd; nobody else gets in.
    assert not answers(hosts)
    confirmed = hosts.command("confirm", HOST, "-i", str(hosts.inventory))
    assert confirmed.returncode == 4, confirmed.stdout
    comes_back(hosts, 300)
    assert configuration(hosts) == "# first"
    until(lambda: is_over(hosts))
    late = hosts.command("confirm", HOST, "-i", str(hosts.inventory))
    assert late.returncode == 1 and "went back at" in late.stdout, late.stdout


def test_a_full_disk_does_not_keep_a_host_from_going_back(hosts: Cluster) -> None:
    apply(hosts, "# tried", seconds=20, trial="full")
    hosts.on(HOST, "dd if=/dev/zero of=/var/lib/ironspan/filler bs=64k 2>/dev/null || true")
    assert hosts.on(HOST, "df --output=avail /var/lib/ironspan | tail -n 1").strip() == "0"
    until(lambda: configuration(hosts) == "# first")
    until(lambda: is_over(hosts))  # sshd restarts once its file is back
    hosts.on(HOST, "rm /var/lib/ironspan/filler")
    assert "rolled back" in hosts.command("rollback", HOST, "--list", "-i", str(hosts.inventory)).stdout


def test_confirmed_it_stays_and_leads_back(hosts: Cluster) -> None:
    apply(hosts, "# second", seconds=600, trial="kept")
    listed = hosts.command("rollback", HOST, "--list", "-i", str(hosts.inventory))
    assert "on trial until" in listed.stdout
    confirmed = hosts.command("confirm", HOST, "-i", str(hosts.inventory))
    assert confirmed.returncode == 0, confirmed.stdout
    assert configuration(hosts) == "# second"
    back = hosts.command("rollback", HOST, "-i", str(hosts.inventory))
    assert back.returncode == 0, back.stdout
    assert configuration(hosts) == "# first"
    again = hosts.command("rollback", HOST, "-i", str(hosts.inventory))
    assert again.returncode == 0 and " 0 changes" in again.stdout


@pytest.mark.long
def test_a_reboot_does_not_prolong_a_trial(hosts: Cluster) -> None:
    hosts.on(HOST, "umount -l /var/lib/ironspan; rm -rf /var/lib/ironspan")
    apply(hosts, "# first again")
    apply(hosts, "# tried", seconds=45, trial="boot")
    journal = hosts.on(HOST, "tail -n 1 /var/lib/ironspan/journal/open.jsonl")
    until = json.loads(journal)["trial"]["until"]
    # Were the time counted again after the boot, it would be this much too late.
    time.sleep(15)
    before, began = status(hosts), time.monotonic()
    subprocess.run(["nsenter", "-t", str(before), "-m", "-u", "-i", "-p", "systemctl", "reboot"], check=True)
    while status(hosts) in (before, None):
        assert time.monotonic() < began + 60
        time.sleep(0.5)
    comes_back(hosts, 60)
    while configuration(hosts) != "# first again":
        assert time.monotonic() < began + 90
        time.sleep(1)
    report = json.loads(hosts.on(HOST, "cat /var/lib/ironspan/history/reports.json"))[-1]
    assert -2 <= report["ended"] - until < 12, "at its time, not before and not much later"


def status(hosts: Cluster) -> int | None:
    """Return the number of the host's first process on this machine."""
    pid = next(one["init_pid"] for one in hosts.lab.status()["hosts"] if one["name"] == HOST)
    return int(pid) if pid else None
