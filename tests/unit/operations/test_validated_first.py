# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every playbook checks the inventory before a host is contacted."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "inventories" / "example"
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
READS_THE_SITE = {
    # Actions that run on the controller and begin with the checked site (ClusterAction, PageAction).
    "ironspan.hybrid.access_review",
    "ironspan.hybrid.admission_policies",
    "ironspan.hybrid.approve_kubelet_certificates",
    "ironspan.hybrid.awx_left",
    "ironspan.hybrid.azure_routes",
    "ironspan.hybrid.cluster_objects",
    "ironspan.hybrid.converge",  # asks for the site on the controller before it sends anything
    "ironspan.hybrid.doctor",
    "ironspan.hybrid.etcd_membership",
    "ironspan.hybrid.etcd_restore",
    "ironspan.hybrid.gpu_pairs",
    "ironspan.hybrid.gpu_preflight",
    "ironspan.hybrid.join_ready",
    "ironspan.hybrid.net_check",
    "ironspan.hybrid.net_policy",
    "ironspan.hybrid.node_drain",
    "ironspan.hybrid.verify",
}

READS_NO_SITE = {
    # It asks the controller of jobs who launched and who approved, and takes nothing from an inventory.
    "ironspan.hybrid.awx_guard",
}


def first_action(playbook: str) -> str:
    """Return what a playbook does first: an action, or ``validate`` for the playbook of that name."""
    plays: list[dict[str, t.Any]] = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text())
    imported = plays[0].get("ansible.builtin.import_playbook")
    if imported == "validate.yml":
        return "validate"
    if imported:
        return first_action(Path(imported).stem)
    return first_of(plays[0]["tasks"], ROOT / "roles")


def first_of(tasks: list[dict[str, t.Any]], roles: Path) -> str:
    """Return the first action of a list of tasks, with roles and blocks opened."""
    task = tasks[0]
    if "block" in task:
        return first_of(task["block"], roles)
    role = task.get("ansible.builtin.import_role")
    if role:
        name, file = role["name"].rpartition(".")[2], role.get("tasks_from", "main")
        return first_of(yaml.safe_load((roles / name / "tasks" / f"{file}.yml").read_text()), roles)
    (action,) = (key for key in task if "." in key)
    return action


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_begins_with_the_check(playbook: str) -> None:
    action = first_action(playbook)
    assert action in {*READS_THE_SITE, *READS_NO_SITE, "validate", "ironspan.hybrid.validate"}


@pytest.mark.parametrize("playbook", ["certs", "confirm", "history", "nodes", "verify", "access_review"])
def test_no_host_is_contacted_with_a_wrong_inventory(playbook: str, tmp_path: Path) -> None:
    """The command ssh is a program that writes down that it was asked."""
    asked = tmp_path / "asked"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho asked >> {asked}\nexit 255\n")
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("all:\n  vars:\n    site_wan_mut: 1400\n")
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-playbook",
            "-i",
            EXAMPLE,
            "-i",
            wrong,
            f"playbooks/{playbook}.yml",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(tmp_path),
            "ANSIBLE_SSH_EXECUTABLE": str(ssh),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "site_wan_mut: unknown variable; write site_wan_mtu" in done.stdout + done.stderr
    assert not asked.exists()
