# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""An estate planned and deployed through the real Azure SDKs, against the emulated resource manager."""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import subprocess
import time
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import ask_estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import told
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.begun import Begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Outcome, bring_as_planned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.compute import ComputeManagementClient

from ironspan.lab.azure import settings
from tests.support.killed_estate import in_a_process
from tests.support.lab_arm import LabArm, arm  # noqa: F401
from tests.support.lab_azure import azure, running_azure  # noqa: F401
from tests.support.lab_estate import NAME, POOL, SMALL, kind, run, site
from tests.support.playbooks import BIN, ROOT
from tests.support.small_plays import run as play
from tests.unit.doctor import samples


@pytest.fixture(autouse=True)
def quota(arm: LabArm) -> None:
    """As much of everything as an estate of the tests needs."""
    arm.set(limits={"StandardNCadsH100v5Family": 400, "standardNDSH100v5Family": 400, "cores": 800})


def test_from_an_empty_subscription_to_an_estate_and_no_second_change(arm: LabArm) -> None:
    planned = run(arm, azure_pools=[POOL], check=True)
    assert planned.problems == []
    assert arm.show()["resources"] == []
    deployed = run(arm, azure_pools=[POOL])
    assert deployed.problems == []
    assert deployed.done == planned.done
    there = arm.show()["resources"]
    again, asked = counted(arm, lambda: run(arm, azure_pools=[POOL]))
    assert (again.done, again.problems) == ([], [])
    assert asked == NOTHING_TO_DO
    assert arm.show()["resources"] == there


WHAT_IF = "/providers/Microsoft.Resources/deploymentStacksWhatIfResults/"
NOTHING_TO_DO = {
    "GET the subscription": 1,
    "GET the stack": 1,
    "PUT a what-if": 1,
    "GET whether it is done": 1,
    "GET a what-if": 1,
    "DELETE a what-if": 1,
}
"""Requests of a run that changes nothing: one what-if, whose result is taken away, and nothing is written."""


SCOPE = f"/subscriptions/{settings.SUBSCRIPTION}/providers"
VIRTUAL_MACHINES, INTERFACES = "Microsoft.Compute/virtualMachines", "Microsoft.Network/networkInterfaces"


def counted[T](arm: LabArm, work: Callable[[], T]) -> tuple[T, dict[str, int]]:
    """Return what came of a run, and how many requests of each sort it made to the resource manager."""
    arm.azure.do("requests", clear=True)
    outcome = work()
    names = {
        f"/subscriptions/{settings.SUBSCRIPTION}": "the subscription",
        f"{SCOPE}/Microsoft.Resources/deploymentStacks/{NAME}": "the stack",
    }

    def sort(one: Mapping[str, t.Any]) -> str:
        path = str(one["path"])
        if WHAT_IF in path:
            action = path.endswith("/whatIf")
            return f"{one['method']} {'the properties of a what-if' if action else 'a what-if'}"
        if "/providers/Microsoft.Resources/locations/lab/operations/" in path:
            return "GET whether it is done"
        return f"{one['method']} {names.get(path, path)}"

    return outcome, dict(collections.Counter(map(sort, arm.azure.requests("management"))))


def test_a_second_plan_is_one_what_if_and_a_second_apply_changes_nothing(arm: LabArm) -> None:
    first, asked = counted(arm, lambda: run(arm, azure_pools=[POOL], check=True))
    # What would be made is asked for once more, for its properties, and checked: still no write but what-ifs.
    assert asked["PUT a what-if"] == asked["POST the properties of a what-if"] == 1
    assert sum(asked.values()) <= 40
    assert {one.partition(" ")[0] for one in asked} <= {"GET", "HEAD", "PUT", "POST", "DELETE"}
    assert "PUT the stack" not in asked
    plan = [thing.as_dict() for thing in first.things]
    assert apply(arm, plan).problems == []
    second, asked = counted(arm, lambda: run(arm, azure_pools=[POOL], check=True))
    assert (second.done, asked) == ([], NOTHING_TO_DO)
    nothing = [thing.as_dict() for thing in second.things]
    applied, asked = counted(arm, lambda: apply(arm, nothing))
    assert (applied.done, applied.problems, asked) == ([], [], NOTHING_TO_DO)


MACHINES = SMALL["azure_machines"]


GANG = {"name": "gang", "groups": ["nodes"], "size": "Standard_ND96isr_H100_v5", "count": 2, "gangs": True}
FULL: dict[str, t.Any] = {
    "azure_pools": [POOL],
    "azure_machines": [*MACHINES, GANG],
    "azure_vault": {"keys": ["kms", "pki"]},
    "azure_backup": {"container": "etcd"},
    "azure_storage": [{"name": "weights", "containers": ["models"], "readers": ["burst"]}],
}
MORE = [*MACHINES, {"name": "spare", "groups": ["nodes"], "count": 1}]


@pytest.mark.parametrize("how", ["stack", pytest.param("plain", marks=pytest.mark.long)])
def test_everything_that_an_estate_can_have(arm: LabArm, how: str) -> None:
    deployed = run(arm, azure_deployment=how, **FULL)
    assert deployed.problems == []
    again = run(arm, azure_deployment=how, **FULL)
    assert (again.done, again.problems) == ([], [])
    changed = run(
        arm,
        azure_deployment=how,
        check=True,
        **{**FULL, "azure_machines": [*FULL["azure_machines"], MORE[-1]]},
    )
    assert "1 virtualMachines" in changed.done[-1]
    assert changed.problems == []


def test_routes_to_pods_come_and_go_with_nodes_as_the_plan_says(arm: LabArm) -> None:
    routed: dict[str, t.Any] = {
        "site_cni": "cilium",
        "cilium_routing": "native",
        "azure_pools": [{**POOL, "pods": "routed"}],
    }
    routes = [
        {"node": f"burst-{number}", "part": f"10.244.{number}.0/24", "address": f"10.20.8.2{number}"}
        for number in (1, 2)
    ]
    assert run(arm, **routed).problems == []
    joined = run(arm, **routed, azure_pod_routes=routes)
    assert joined.problems == []
    changed = "change routeTables ironspan-example-routes in ironspan-example-network"
    assert joined.done == [f"deploy {NAME}: {changed}"]
    again = run(arm, **routed, azure_pod_routes=routes)
    assert (again.done, again.problems) == ([], [])
    left = run(arm, **routed, azure_pod_routes=routes[:1])
    assert (left.done, left.problems) == (joined.done, [])


def test_what_leaves_the_data_stays_and_is_named(arm: LabArm) -> None:
    run(arm, azure_machines=MORE)
    outcome = run(arm)
    assert [step for step in outcome.done if step.startswith("delete")] == []
    assert "stop managing virtualMachines spare-1 in ironspan-example-machines: it left" in "\n".join(
        outcome.done
    )
    assert [one for one in arm.show()["resources"] if one.endswith("/virtualMachines/spare-1")]
    assert run(arm).done == []


def test_a_deletion_needs_consent_and_deletes_what_is_named(arm: LabArm) -> None:
    run(arm, azure_machines=MORE)
    before = {*arm.show()["resources"]}
    with pytest.raises(RemoteError, match=r"need consent: .*delete virtualMachines spare-1"):
        run(arm, azure_unmanaged="delete")
    assert {*arm.show()["resources"]} == before
    outcome = run(arm, azure_unmanaged="delete", allowed=True)
    assert outcome.problems == []
    gone = before - {*arm.show()["resources"]}
    named = [step.split()[2] for step in outcome.done if step.startswith("delete")]
    # The disk of its operating system goes with a machine.
    with_it = {one for one in gone if "/disks/ironspan-example-os-spare-1" in one}
    assert sorted(one.rpartition("/")[2] for one in gone - with_it) == sorted(named)
    assert len(with_it) == 1
    assert run(arm, azure_unmanaged="delete").done == []


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("AnotherOperationInProgress", {"type": "Microsoft.Network/virtualNetworks", "count": 2}),
        ("RetryableError", {"type": "Microsoft.Network/loadBalancers", "count": 2}),
        pytest.param(
            "RetryableErrorDueToAnotherOperation",
            {"type": "Microsoft.Network/networkInterfaces"},
            marks=pytest.mark.long,
        ),
        ("PrincipalNotFound", {"type": "Microsoft.Authorization/roleAssignments", "count": 2}),
        pytest.param("InternalServerError", {"type": "Microsoft.Compute/disks"}, marks=pytest.mark.long),
    ],
)
def test_what_succeeds_a_little_later_is_tried_again(arm: LabArm, code: str, about: dict[str, t.Any]) -> None:
    arm.fault(code, **about)
    outcome = run(arm, azure_backup={"container": "etcd"})
    assert outcome.problems == []
    assert run(arm, azure_backup={"container": "etcd"}).done == []


@pytest.mark.parametrize(
    ("code", "about", "remedy"),
    [
        ("QuotaExceeded", {"type": "Microsoft.Compute/virtualMachines", "name": "etcd-2"}, "more quota"),
        pytest.param(
            "SkuNotAvailable",
            {"type": "Microsoft.Compute/virtualMachines"},
            "another size",
            marks=pytest.mark.long,
        ),
        ("OverconstrainedZonalAllocationRequest", {"name": "control-plane-1"}, "another size"),
        ("RequestDisallowedByPolicy", {"type": "Microsoft.Network/networkInterfaces"}, "the policy"),
    ],
)
def test_a_partial_failure_is_told_and_the_next_run_finishes(
    arm: LabArm, code: str, about: dict[str, t.Any], remedy: str
) -> None:
    arm.fault(code, **about)
    failed = run(arm)
    (problem,) = failed.problems
    assert code in problem
    assert remedy in problem
    made = arm.show()["resources"]
    assert made
    finished = run(arm)
    assert finished.problems == []
    assert {*made} <= {*arm.show()["resources"]}
    assert run(arm).done == []


def test_a_throttled_resource_manager_is_asked_again(arm: LabArm) -> None:
    arm.azure.fault("status", service="management", status=429, retry_after=0, count=3)
    assert run(arm).problems == []


def test_rights_that_are_seen_late_are_waited_for(arm: LabArm) -> None:
    arm.set(role_delay_s=1.0)
    try:
        outcome = run(arm, azure_backup={"container": "etcd"}, options={"pauses": (0.5,) * 10})
    finally:
        arm.set(role_delay_s=0.0)
    assert outcome.problems == []


def planned(arm: LabArm, **data: t.Any) -> list[dict[str, t.Any]]:
    return [thing.as_dict() for thing in run(arm, check=True, **data).things]


def apply(arm: LabArm, plan: list[dict[str, t.Any]], marks: Begun | None = None) -> Outcome:
    return bring_as_planned(kind(arm), plan, False, marks or Begun(None), lambda text: None)


def test_a_stale_plan_is_refused(arm: LabArm) -> None:
    plan = planned(arm)
    run(arm, azure_machines=MACHINES[:1])
    before = arm.show()["resources"]
    outcome = apply(arm, plan)
    assert "make a new plan" in outcome.problems[0]
    assert arm.show()["resources"] == before
    assert apply(arm, planned(arm)).problems == []
    assert run(arm).done == []


def test_a_killed_controller_is_followed_and_nothing_is_made_twice(arm: LabArm) -> None:
    # Slow enough that it is still under way when this machine comes to kill the controller.
    arm.set(pace=0.2)
    before = len(arm.show()["machines"])
    try:
        process = in_a_process(run, arm)
        until = time.monotonic() + 180
        while "put" not in {one["kind"] for one in arm.show()["running"]}:
            assert time.monotonic() < until and process.is_alive()
            time.sleep(0.02)
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert arm.show()["running"]
        said: list[str] = []
        outcome = run(arm, say=said.append)
    finally:
        arm.set(pace=0.0)
    assert outcome.problems == []
    assert outcome.done[0] == f"follow {NAME}, which is being deployed, until all of it is there"
    started = [name for call, name in arm.show()["machines"][before:] if call == "start"]
    assert len(started) == len({*started}) == 6
    assert run(arm).done == []


def test_another_tenant_or_subscription_is_named_before_anything_is_made(arm: LabArm) -> None:
    (problem,) = run(arm, azure_tenant="00000000-0000-4000-8000-000000000000").problems
    assert f"is of the tenant {settings.TENANT}" in problem
    assert arm.show()["resources"] == []


def test_providers_that_nobody_used_yet_are_registered(arm: LabArm) -> None:
    arm.azure.do("arm_unregister", provider="Microsoft.Network")
    planned_ = run(arm, check=True)
    assert planned_.problems == []
    assert planned_.done[0] == "register the resource provider Microsoft.Network in the subscription"
    assert run(arm).problems == []
    assert run(arm).done == []


def test_names_that_are_taken_are_problems_of_the_plan(arm: LabArm) -> None:
    name = "acmebackupweu1"
    arm.set(taken=[name])
    try:
        (problem,) = run(arm, azure_backup={"container": "etcd", "account": name}).problems
    finally:
        arm.set(taken=[])
    assert f"the name {name} cannot be had" in problem
    assert arm.show()["resources"] == []


def doctor_says(arm: LabArm, **data: t.Any) -> list[tuple[str, str]]:
    """What doctor and status say of the estate."""
    whole = samples.site_with({**SMALL, **data})
    asked = ask_estate(
        whole, lambda subscription: Deployments(arm.azure.management("operator"), subscription)
    )
    return [(finding.level, finding.what) for finding in told(whole, asked, time.time())]


def test_doctor_and_status_know_the_estate(arm: LabArm) -> None:
    data: dict[str, t.Any] = {"azure_backup": {"container": "etcd"}, "azure_pools": [POOL]}
    assert doctor_says(arm, **data) == [("problem", f"the estate {NAME} was never deployed")]
    assert run(arm, **data).problems == []
    assert doctor_says(arm, **data) == []
    roles = arm.client(AuthorizationManagementClient).role_assignments
    mine = [one.id for one in roles.list_for_subscription() if "/containers/etcd/" in str(one.id)]
    roles.delete_by_id(mine[0])
    arm.client(ComputeManagementClient).virtual_machines.begin_delete(
        "ironspan-example-machines", "etcd-2"
    ).wait()
    assert doctor_says(arm, **data) == [
        ("problem", f"the estate {NAME} lacks role assignments on etcd"),
        ("problem", f"the estate {NAME} lacks what the data have: etcd-2"),
    ]
    arm.set(limits={"StandardNCadsH100v5Family": 40, "cores": 400})
    assert run(arm, **data).problems == []
    ((level, what),) = doctor_says(arm, **data)
    assert (level, "160 wanted = 160 of 40" in what) == ("notice", True)


def test_doctor_and_status_tell_of_roles_that_end_and_of_those_that_have_ended(arm: LabArm) -> None:
    data: dict[str, t.Any] = {"azure_backup": {"container": "etcd"}}
    assert run(arm, **data).problems == []
    roles = arm.client(AuthorizationManagementClient).role_assignments
    mine = [one for one in roles.list_for_subscription() if "/containers/etcd/" in str(one.id)]
    now, day = time.time(), 86400.0
    who = sorted(str(one.principal_id) for one in mine)
    # Who is the member of etcd whose right to write backups ends in two days, in ten, in thirty.
    arm.set(role_ends=dict(zip(who, (now + 2.5 * day, now + 10.5 * day, now + 30 * day), strict=True)))
    said = [(level, what) for level, what in doctor_says(arm, **data) if " on etcd " in what]
    assert [level for level, _ in said] == ["problem", "notice"]
    pattern = r"the role ironspan backup writer.* of ironspan-example-id-etcd-\d on etcd ends in .*"
    assert all(re.fullmatch(pattern, what) for _, what in said), said
    arm.azure.do("arm_advance", seconds=3 * day)
    lacks = f"the estate {NAME} lacks role assignments on etcd, ironspan-example-key-backup"
    assert ("problem", lacks) in doctor_says(arm, **data)
    assert run(arm, **data).problems == []
    assert [level for level, what in doctor_says(arm, **data) if " on etcd " in what] == ["notice"]


def hosts_of(inventory: Path) -> dict[str, t.Any]:
    """Return what ansible-inventory lists."""
    done = subprocess.run(
        [str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, t.Any] = json.loads(done.stdout)
    return found


def test_the_playbook_goes_from_no_host_to_hosts_whose_keys_are_known(arm: LabArm, tmp_path: Path) -> None:
    inventory = site(arm, tmp_path)
    before = hosts_of(inventory)
    assert sorted(before["etcd"]["hosts"]) == ["etcd-1", "etcd-2", "etcd-3"]
    checked = play(tmp_path, "-i", str(inventory), "playbooks/azure.yml", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not (tmp_path / "known_hosts").exists()
    deployed = play(tmp_path, "-i", str(inventory), "playbooks/azure.yml")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    assert "create" in deployed.stdout
    again, asked = counted(arm, lambda: play(tmp_path, "-i", str(inventory), "playbooks/azure.yml"))
    assert again.returncode == 0, again.stdout + again.stderr
    # The inventory lists machines and interfaces, and so does who records host keys.
    lists = {f"GET {SCOPE}/{one}": 2 for one in (VIRTUAL_MACHINES, INTERFACES)}
    assert asked == {**NOTHING_TO_DO, **lists}
    assert "changed=0" in again.stdout
    file = tmp_path / "known_hosts"
    recorded = file.read_text()
    after = hosts_of(inventory)
    known = {line.split()[0].partition(",")[2] for line in recorded.splitlines()}
    assert known == {*after["_meta"]["hostvars"]} == {*after["azure"]["hosts"]}
    assert "10.20.0.16,etcd-1 ssh-ed25519 " in recorded
    # Whoever reads the inventory writes nothing, whatever is recorded.
    assert file.read_text() == recorded
    file.unlink()
    hosts_of(inventory)
    assert not file.exists()
    assert "10.20.0.16" in str(after["_meta"]["hostvars"]["etcd-1"]["ansible_host"])
