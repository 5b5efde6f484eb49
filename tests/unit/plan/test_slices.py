# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Slices of an inventory: refused without a plan, and with one each applies its own hosts."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import members, site_lock
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import slices

from tests.support.small_plays import APPLY, files, play, run
from tests.unit.plan.test_playbooks import PLAN, message, write_inventory
from tests.unit.render.support import ROLES

SLICED = {"awx_job_template_name": "apply", "awx_workflow_job_name": "apply", "awx_job_id": 12}
ALL = {"a1", "a2", "w1"}


@pytest.mark.parametrize(
    ("variables", "planned", "expected"),
    [
        ({}, set(), False),
        (SLICED, set(), True),
        ({"tower_job_template_name": "x", "tower_workflow_job_name": "x"}, set(), True),
        ({**SLICED, "awx_workflow_job_name": "plan, approve, apply"}, set(), False),
        ({**SLICED, "ironspan_slice": "false"}, ALL | {"w2"}, False),
        ({"ironspan_slice": "true"}, set(), True),
        ({}, ALL, False),
        ({}, ALL | {"w2"}, True),
        ({"awx_job_template_name": "apply"}, set(), False),
        ({"awx_job_template_name": "", "awx_workflow_job_name": ""}, set(), False),
    ],
)
def test_what_is_a_slice(variables: dict[str, t.Any], planned: set[str], expected: bool) -> None:
    assert slices.is_slice(variables, ALL, planned) is expected


@pytest.mark.parametrize(
    ("answer", "elsewhere", "ok"),
    [
        ({"changes": [{"resource": "etcd/config"}]}, ["a2"], False),
        ({"changes": [{"resource": "etcd/config"}]}, [], True),
        ({"pending": [{"resource": "control_plane/join"}]}, ["a2"], False),
        ({"changes": [{"resource": "base/motd"}], "pending": []}, ["a2"], True),
        ({}, ["a2"], True),
    ],
)
def test_members_are_changed_in_one_slice_or_none(
    answer: dict[str, t.Any], elsewhere: list[str], ok: bool
) -> None:
    verdict = members.slice_verdict(answer, elsewhere)
    assert verdict["ok"] is ok
    assert ("limit etcd:control_plane:localhost" in verdict["remedy"]) is not ok
    assert members.members_of({"a": answer, "b": {}}) == (
        {"a"} if members.changes_membership(answer) else set()
    )


class Runs:
    """Processes that stand for runs of ansible-playbook."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.processes: list[subprocess.Popen[bytes]] = []

    def take(self, plan: str = "", part: str = "") -> subprocess.Popen[bytes]:
        """Take the lock for a new run."""
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.processes.append(process)
        site_lock.take(self.store, process.pid, plan, part)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a run."""
        process.kill()
        process.wait()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Runs]:
    monkeypatch.setattr(site_lock, "_PATIENCE_S", 1.0)
    made = Runs(str(tmp_path / "pki"))
    yield made
    for process in made.processes:
        made.end(process)


def test_slices_of_one_plan_share_the_lock(runs: Runs) -> None:
    one, two = runs.take("aaa"), runs.take("aaa")
    path = site_lock.lock_file(runs.store)
    assert site_lock.holder_of(path).startswith(f"plan aaa, process {one.pid} on ")
    for plan, words in (("bbb", "another run is changing this site: plan aaa"), ("", "plan aaa")):
        with pytest.raises(PlanError, match=words):
            runs.take(plan)
    # The first one dies: the others still have it.
    runs.end(one)
    with pytest.raises(PlanError):
        runs.take("bbb")
    runs.take("aaa")
    runs.end(two)
    with pytest.raises(PlanError):
        runs.take("")


def test_when_all_slices_are_dead_another_plan_or_run_has_the_lock(runs: Runs) -> None:
    for plan in ("aaa", "", "bbb", "aaa"):
        run_ = runs.take(plan)
        assert site_lock.holder_of(site_lock.lock_file(runs.store)).startswith("plan" if plan else "process")
        runs.end(run_)
    # The keeper needs a moment to notice.
    with site_lock.lock_file(runs.store).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert site_lock.holder_of(site_lock.lock_file(runs.store)) == ""
    assert site_lock.holder_of(Path("/nowhere/lock")) == ""


def test_a_run_that_is_alone_is_joined_by_no_slice(runs: Runs) -> None:
    runs.take()
    with pytest.raises(PlanError, match="another run is changing this site: process"):
        runs.take("aaa")


def test_one_slice_at_a_time_changes_members(runs: Runs) -> None:
    runs.take("aaa"), runs.take("aaa")
    one = runs.take(part=site_lock.MEMBERS)
    with pytest.raises(PlanError, match="another run"):
        runs.take(part=site_lock.MEMBERS)
    runs.end(one)
    runs.take(part=site_lock.MEMBERS)


def three_members(folder: Path) -> Path:
    """Write the small site, with three etcd members."""
    inventory = write_inventory(folder)
    text = inventory.read_text()
    text = text.replace(
        "a1: {site_address: 10.1.0.1}",
        "a1: {site_address: 10.1.0.1}, a2: {site_address: 10.1.0.2}, a3: {site_address: 10.1.0.3}",
    ).replace("etcd: {hosts: {a1: }}", "etcd: {hosts: {a1: , a2: , a3: }}")
    inventory.write_text(text)
    for host in ("a2", "a3"):
        (folder / "roots" / host / "etc").mkdir(parents=True)
    return inventory


def make_slice(inventory: Path, *hosts: str) -> Path:
    """Write what AWX gives a slice: all groups with their variables, and some of the hosts."""
    content = yaml.safe_load(inventory.read_text())
    for group in content["all"]["children"].values():
        group["hosts"] = {name: values for name, values in group["hosts"].items() if name in hosts}
    file = inventory.with_name(f"slice-{'-'.join(hosts)}.json")
    file.write_text(json.dumps(content))
    return file


def planned(folder: Path, *options: str) -> Plan:
    """Make a plan of the whole inventory."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import load

    done = play(folder, PLAN.format(roles=ROLES, file=folder / "p.plan.json"), *options)
    assert done.returncode == 0, done.stdout
    return load(folder / "p.plan.json")


def sliced(folder: Path, inventory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run site.yml's essence in a slice."""
    playbook = folder / f"{inventory.stem}.yml"
    playbook.write_text(APPLY.format(roles=ROLES))
    return run(
        folder, str(playbook), "-i", str(inventory), "-e", json.dumps(SLICED), *options,
        XDG_STATE_HOME=str(folder / "state"),
    )  # fmt: skip


def test_slices_apply_their_own_hosts_of_one_plan(tmp_path: Path) -> None:
    inventory = three_members(tmp_path)
    plan = planned(tmp_path)
    assert set(plan.hosts) == {"a1", "a2", "a3", "w1", "w2"}
    assert plan.content["cluster"]["addresses"] == {
        "a1": ["10.1.0.1"],
        "w1": ["10.2.0.1"],
        "w2": ["10.2.0.2"],
    }
    workers, mixed = make_slice(inventory, "w1"), make_slice(inventory, "a1", "a3", "w2")

    # Without a plan: refused, although this slice has hosts in every group.
    refused = sliced(tmp_path, mixed)
    assert refused.returncode == 2
    assert "this job sees a slice of the inventory" in message(refused)
    assert "apply it in the slices with ironspan_plan" in message(refused)
    assert files(tmp_path) == {}

    use = ("-e", f"ironspan_plan={tmp_path / 'p.plan.json'}")
    with (tmp_path / "pki.lock").open("w") as lock:
        # Another slice of this plan is at work.
        lock.write(f"plan {plan.digest}, process 1 on elsewhere and other slices\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_SH)
        done = sliced(tmp_path, workers, *use)
        assert done.returncode == 0, done.stdout
        assert list(files(tmp_path)) == ["roots/w1/etc/ironspan-test/motd"]

        # Members that others in other slices wait for are left alone, the worker beside them is done.
        half = sliced(tmp_path, mixed, *use)
        assert half.returncode == 2
        assert "a member to be changed, with others in other slices: a2" in message(half)
        assert "in a job that is not sliced (limit etcd:control_plane:localhost)" in message(half)
        assert sorted(name.split("/")[1] for name in files(tmp_path)) == ["w1", "w2"]

        # A whole run may not begin meanwhile.
        whole = play(tmp_path, APPLY.format(roles=ROLES), *use)
        assert whole.returncode == 2
        assert f"another run is changing this site: plan {plan.digest}" in message(whole)

    together = play(tmp_path, APPLY.format(roles=ROLES), "--limit", "etcd,localhost", *use,
                    XDG_STATE_HOME=str(tmp_path / "state"))  # fmt: skip
    assert together.returncode == 0, together.stdout
    # Now the slice that had been refused finds its members done.
    again = sliced(tmp_path, mixed, *use)
    assert again.returncode == 0, again.stdout
    assert "changed=1" not in again.stdout
    assert {name.split("/")[1] for name in files(tmp_path)} == {"a1", "a2", "a3", "w1", "w2"}


def test_a_slice_that_nobody_named_is_known_by_the_plan(tmp_path: Path) -> None:
    """Ascender and others may call their workflows differently."""
    inventory = three_members(tmp_path)
    planned(tmp_path)
    part = make_slice(inventory, "a2", "w1")
    use = ("-e", f"ironspan_plan={tmp_path / 'p.plan.json'}")
    unnamed = ("-e", json.dumps({"awx_workflow_job_name": "other"}))
    done = sliced(tmp_path, part, *use, *unnamed)
    assert "a member to be changed, with others in other slices: a1, a3" in message(done)
    assert list(files(tmp_path)) == ["roots/w1/etc/ironspan-test/motd"]
    # Said to be none, it is what it looks like: a site without enough members.
    denied = sliced(tmp_path, part, *use, "-e", "ironspan_slice=false")
    assert denied.returncode == 2
    assert "control_plane" in message(denied) and "in the inventory; no host was contacted" in message(denied)
