# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plans in real runs of ansible-playbook: the real module in private roots, real keys, real signatures."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan, load, seal

from tests.support.playbooks import ROOT
from tests.support.small_plays import (
    APPLY,
    COMPARE,
    CONVERGE_PENDING,
    SSH,
    TWO,
    VALIDATE,
    files,
    mirror_index,
    play,
)
from tests.unit.plan import samples
from tests.unit.render import support
from tests.unit.render.support import KEY, ROLES

PLAN = (
    VALIDATE.format(purpose="plan")
    + """\
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        mode: plan
        root: "{{{{ user_root }}}}"
        roles_folder: "{roles}"
      diff: true
- hosts: localhost
  gather_facts: false
  tasks:
    - ironspan.hybrid.write_plan:
        file: "{file}"
        roles_folder: "{roles}"
"""
)
ALONE = (COMPARE + CONVERGE_PENDING).replace("        mode: assess\n", "")
MOTD = "roots/w2/etc/ironspan-test/motd"


def write_inventory(folder: Path) -> Path:
    """Write the small site with an API address at which nothing answers."""
    inventory = support.write_inventory(folder)
    text = inventory.read_text().replace(
        "site_api_address: 10.1.0.9", "site_api_address: 127.0.0.9\n    site_lab: true"
    )
    inventory.write_text(text)
    return inventory


def make_plan(folder: Path, *options: str) -> Plan:
    """Make a plan of two hosts."""
    done = play(folder, PLAN.format(roles=ROLES, file=folder / "p.plan.json"), *(options or TWO))
    assert done.returncode == 0, done.stdout
    return load(folder / "p.plan.json")


def apply(folder: Path, *options: str, text: str = APPLY) -> subprocess.CompletedProcess[str]:
    """Apply the plan."""
    return play(
        folder,
        text.format(roles=ROLES),
        *TWO,
        "-e",
        f"ironspan_plan={folder / 'p.plan.json'}",
        *options,
        XDG_STATE_HOME=str(folder / "state"),
    )


def message(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a run says, its lines joined."""
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_a_plan_is_made_and_applied_exactly_so(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    plan = make_plan(tmp_path)
    assert files(tmp_path) == {}, "planning changes no host"
    assert sorted(plan.hosts) == ["a1", "w2"]
    assert [change["resource"] for change in plan.hosts["w2"]["changes"]] == ["base/folder", "base/motd"]
    assert plan.hosts["w2"]["changes"][1]["text"] == {
        "before": "",
        "after": "Welcome to small, w2 of small.\n",
    }
    assert [entry["resource"] for entry in plan.hosts["a1"]["pending"]] == ["etcd/server"]
    summary = plan.content["summary"]
    assert (summary["hosts"], summary["hosts_changing"], summary["pending"]) == (2, 2, 1)
    assert "no API answers" in plan.content["cluster"]["state"]

    # Neither the key of the store nor anything that it seals.
    assert KEY.encode() not in plan.data
    assert b"PRIVATE KEY" not in plan.data

    # The inventory changes, the plan does not.
    inventory.write_text(inventory.read_text().replace("user_root:", "base_motd: Goodbye\n    user_root:"))
    done = apply(tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / MOTD).read_text() == "Welcome to small, w2 of small.\n"
    assert "The inventory was changed after the plan was made" in message(done)
    assert sorted(files(tmp_path)) == [
        "roots/a1/etc/etcd/server.crt",
        "roots/a1/etc/etcd/server.key",
        "roots/a1/etc/ironspan-test/motd",
        MOTD,
    ]

    # Hosts remember it, the controller keeps it.
    for host in ("a1", "w2"):
        state = json.loads((tmp_path / f"roots/{host}/var/lib/ironspan/state.json").read_text())
        assert state["plan"] == plan.digest
    kept = tmp_path / "state/ironspan/plans/small" / plan.digest
    assert (kept / "plan.json").read_bytes() == plan.data
    lines = [json.loads(line) for line in (kept / "report.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["begin", "host", "host"]
    assert {line["host"] for line in lines[1:]} == {"a1", "w2"}

    # As it was: the groups that comparing made when the plan was are no change of the inventory.
    inventory.write_text(inventory.read_text().replace("base_motd: Goodbye\n    user_root:", "user_root:"))

    # Once more: nothing to do is no reason to refuse.
    again = apply(tmp_path)
    assert again.returncode == 0, again.stdout
    assert "changed=1" not in again.stdout
    assert "The inventory was changed" not in message(again)

    # Half of it gone again, as after a run that was cut short: the same plan finishes it.
    (tmp_path / MOTD).unlink()
    resumed = apply(tmp_path)
    assert resumed.returncode == 0, resumed.stdout
    assert (tmp_path / MOTD).exists()


def test_a_host_that_moved_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    make_plan(tmp_path)
    (tmp_path / "roots/w2/etc/ironspan-test").mkdir()
    (tmp_path / MOTD).write_text("somebody was here\n")
    done = apply(tmp_path)
    assert done.returncode == 2
    assert "changed since the plan was made: base/folder, base/motd" in message(done)
    assert "Make a new plan" in done.stdout
    assert (tmp_path / MOTD).read_text() == "somebody was here\n"
    assert (tmp_path / "roots/a1/etc/ironspan-test/motd").exists()


def test_a_host_that_is_nearer_to_its_document_is_finished(tmp_path: Path) -> None:
    """As after a step of the same plan on another host, or by hand: less is to be done, and nothing else."""
    write_inventory(tmp_path)
    plan = make_plan(tmp_path)
    wanted = plan.hosts["w2"]["changes"][0]["after"]
    folder = tmp_path / "roots/w2/etc/ironspan-test"
    folder.mkdir()
    folder.chmod(int(wanted["mode"], 8))
    done = apply(tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / MOTD).read_text() == "Welcome to small, w2 of small.\n"


def test_plans_that_are_not_right_and_hosts_that_are_not_in_them(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    plan = make_plan(tmp_path, "--limit", "localhost,w2")

    # A phase alone compares nothing, and the other host is not in the plan.
    alone = apply(tmp_path, text=ALONE)
    assert alone.returncode == 2
    assert "host w2 was not compared with the plan in this run" in message(alone)
    assert alone.stdout.count("failed=1") == 1

    site = plan.content["site"]
    for data, words in (
        (plan.data.replace(b"Welcome", b"welcome"), "was altered"),
        (seal({**plan.content, "site": {**site, "uid": "0" * 16}}).data, "the plan is for another 'small'"),
        (seal({**plan.content, "expires": 1_700_000_000}).data, "the plan expired at 2023-11-14"),
    ):
        (tmp_path / "p.plan.json").write_bytes(data)
        refused = apply(tmp_path)
        assert refused.returncode == 2
        assert words in message(refused)
        assert "no host was contacted" in message(refused)
    assert files(tmp_path) == {}

    (tmp_path / "p.plan.json").write_bytes(plan.data)
    done = apply(tmp_path)
    assert done.returncode == 0, done.stdout
    assert list(files(tmp_path)) == [MOTD], "a1 is not in the plan"


def key(folder: Path, name: str) -> Path:
    """Make a key of somebody."""
    path = folder / f"key-{name}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


def test_approvals_are_asked_for_and_checked(tmp_path: Path) -> None:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import approvals

    inventory = write_inventory(tmp_path)
    signers = tmp_path / "signers"
    keys = {name: key(tmp_path, name) for name in ("ada", "bob", "eve")}
    signers.write_text(
        "".join(f"{name} {keys[name].with_suffix('.pub').read_text()}" for name in ("ada", "bob"))
    )
    inventory.write_text(
        inventory.read_text().replace(
            "user_root:", f"site_plan_approvals: 2\n    site_plan_allowed_signers: {signers}\n    user_root:"
        )
    )
    plan = make_plan(tmp_path)
    path = tmp_path / "p.plan.json"

    without = play(tmp_path, APPLY.format(roles=ROLES), *TWO)
    assert without.returncode == 2 and "make a plan with 'ironspan plan'" in message(without)
    alone = play(tmp_path, ALONE.format(roles=ROLES), *TWO)
    assert alone.returncode == 2 and "need 2 approvals" in message(alone)
    for signer in ("ada", "eve"):
        approvals.sign(plan.data, path, keys[signer])
    refused = apply(tmp_path)
    assert refused.returncode == 2
    assert "needs 2 approvals and has 1: ada" in message(refused)
    assert "its key is not among the allowed signers" in message(refused)
    assert files(tmp_path) == {}
    approvals.sign(plan.data, path, keys["bob"])
    done = apply(tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / MOTD).exists()
    kept = tmp_path / "state/ironspan/plans/small" / plan.digest
    assert json.loads((kept / "report.jsonl").read_text().splitlines()[0])["approved_by"] == ["ada", "bob"]
    assert approvals.check(plan.data, kept / "plan.json", signers).names == ["ada", "bob"]


def test_a_second_run_on_the_site_is_refused(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    with (tmp_path / "pki.lock").open("w") as lock:
        lock.write("process 1 on elsewhere\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = play(tmp_path, APPLY.format(roles=ROLES), *TWO)
        assert done.returncode == 2
        assert "another run is changing this site: process 1 on elsewhere" in message(done)
        assert files(tmp_path) == {}
        checked = play(tmp_path, APPLY.format(roles=ROLES), *TWO, "--check")
        assert checked.returncode == 0, "a check changes nothing and needs no lock"


def test_the_commands_on_a_real_site(tmp_path: Path) -> None:
    """Hosts that do not answer make no plan; a plan that is not right contacts no host."""
    folder, ssh, log = tmp_path / "inventory", tmp_path / "ssh", tmp_path / "ssh.log"
    shutil.copytree(ROOT / "inventories" / "example", folder)
    (tmp_path / "index.json").write_text(mirror_index())
    ssh.write_text(SSH.format(log=log))
    ssh.chmod(0o755)
    environment = {
        "ANSIBLE_SSH_EXECUTABLE": str(ssh), "ANSIBLE_SSH_RETRIES": "0", "ANSIBLE_BECOME": "0",
        "IRONSPAN_PKI_KEY": KEY, "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip

    def ironspan(*arguments: str) -> subprocess.CompletedProcess[str]:
        common = ["-i", str(folder), "-e", f"site_artifacts_index={tmp_path / 'index.json'}"]
        common += ["-e", f"site_pki_store={tmp_path / 'pki'}", "--plain"]
        return subprocess.run(
            [sys.executable, "-m", "ironspan", *arguments, *common],
            cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip

    planned = ironspan("plan", "--limit", "az-1,gpu-a-01", "-o", str(tmp_path))
    assert planned.returncode == 4, planned.stdout
    assert "no plan was written" in planned.stdout
    assert "az-1: unreachable" in planned.stdout
    assert list(tmp_path.glob("*.plan.json")) == []
    assert len(log.read_text().splitlines()) == 2

    path = samples.written(tmp_path)
    refused = ironspan("apply", str(path), "--limit", "az-1")
    assert refused.returncode == 2, refused.stdout
    assert "the plan is for the site 'small', this inventory is" in refused.stdout
    assert len(log.read_text().splitlines()) == 2
