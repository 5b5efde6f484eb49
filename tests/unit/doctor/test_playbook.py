# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The doctor in real runs: hosts that answer and that do not, no cluster, a wrong inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.playbooks import ROOT
from tests.support.small_plays import SSH, files, mirror_index, play
from tests.unit.render.support import KEY, ROLES, write_inventory

DOCTOR = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ironspan.hybrid.doctor:
        mode: prepare
        roles_folder: "{roles}"
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.host_health:
        root: "{{{{ user_root }}}}"
- hosts: localhost
  gather_facts: false
  tasks:
    - ironspan.hybrid.doctor:
        roles_folder: "{roles}"
        report: "{report}"
"""


def test_hosts_answer_and_there_is_no_cluster(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    text = inventory.read_text()
    # One host of three is reached in a way that does not work.
    inventory.write_text(
        text.replace("w1: {site_address: 10.2.0.1}", "w1: {site_address: 10.2.0.1, ansible_connection: ssh}")
    )
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(log=tmp_path / "ssh.log"))
    ssh.chmod(0o755)
    # One host has been worked on, and somebody was there since.
    motd = tmp_path / "roots/w2/etc/ironspan-test/motd"
    motd.parent.mkdir(parents=True)
    motd.write_text("edited\n")
    report = tmp_path / "report.json"
    done = play(
        tmp_path, DOCTOR.format(roles=ROLES, report=report), ANSIBLE_SSH_EXECUTABLE=str(ssh),
        ANSIBLE_SSH_RETRIES="0",
    )  # fmt: skip
    assert done.returncode == 2, done.stdout
    assert "small: " in done.stdout and "(2 of 3 hosts answered, API NOT asked" in done.stdout
    assert "✗ reachable: w1: cannot be reached" in done.stdout
    assert "This site was not built yet" in done.stdout
    found = json.loads(report.read_text())
    drift = next(check for check in found["checks"] if check["name"] == "drift")
    assert {host for finding in drift["findings"] for host in finding["hosts"]} == {"a1", "w2"}
    assert found["exit_code"] == 1 and found["asked"] == {
        "hosts": 3, "hosts_answered": 2, "api": False, "etcd": False,
    }  # fmt: skip
    # Reads only: no authority was made, nothing was written on hosts.
    assert not (tmp_path / "pki").exists()
    assert list(files(tmp_path)) == ["roots/w2/etc/ironspan-test/motd"]
    assert not list((tmp_path / "roots").rglob("var/lib/ironspan"))
    # One connection a host.
    assert len((tmp_path / "ssh.log").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "code", "says"),
    [
        ("site_pki_store=/nonexistent/pki", 4, "example: nobody answered"),
        ("site_nmae=x", 2, "site_nmae: unknown variable"),
    ],
)
def test_the_command_says_when_nobody_answers_and_when_the_inventory_is_wrong(
    variable: str, code: int, says: str, tmp_path: Path
) -> None:
    ssh, index = tmp_path / "ssh", tmp_path / "index.json"
    ssh.write_text(SSH.format(log=tmp_path / "ssh.log"))
    ssh.chmod(0o755)
    index.write_text(mirror_index())
    done = subprocess.run(
        [
            sys.executable, "-m", "ironspan", "doctor", "-i", str(ROOT / "inventories" / "example"),
            "--plain",
            "--limit", "az-1,gpu-a-01", "-e", f"site_artifacts_index={index}", "-e", variable,
            "--report", str(tmp_path / "report.json"),
        ],
        cwd=ROOT,
        env={
            **os.environ, "ANSIBLE_SSH_EXECUTABLE": str(ssh), "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_BECOME": "0", "IRONSPAN_PKI_KEY": KEY,
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout
    if code == 4:
        assert "az-1, gpu-a-01: cannot be reached" in done.stdout
        assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 4
    else:
        assert not (tmp_path / "ssh.log").exists(), "no host was contacted"
