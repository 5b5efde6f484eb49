# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""Faults of the resource manager, and controllers that are killed at every stage of an estate's deployment.

After each of them the next run finishes: nothing is made twice, and nothing goes that no plan named.
"""

from __future__ import annotations

import signal
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from azure.mgmt.compute import ComputeManagementClient

from tests.support.killed_estate import deploy_until, in_a_process
from tests.support.lab_arm import LabArm, arm  # noqa: F401
from tests.support.lab_azure import azure, running_azure  # noqa: F401
from tests.support.lab_estate import SMALL, run

pytestmark = pytest.mark.long
DATA: dict[str, t.Any] = {"azure_backup": {"container": "etcd"}, "azure_vault": {"keys": ["kms"]}}
MORE = {
    **DATA,
    "azure_machines": [*SMALL["azure_machines"], {"name": "spare", "groups": ["nodes"], "count": 1}],
}
GOES: dict[str, t.Any] = {"azure_unmanaged": "delete", "allowed": True, **DATA}
VM, NET = "Microsoft.Compute/virtualMachines", "Microsoft.Network"


def tried(arm: LabArm, **data: t.Any) -> list[str]:
    """Run, and return what went wrong; a run may also end without having begun."""
    try:
        return run(arm, **data).problems
    except RemoteError as error:
        return [str(error)]


def machines(arm: LabArm) -> set[tuple[str, str]]:
    """Return machines with their identity, which another one of the same name would not have."""
    listed = arm.client(ComputeManagementClient).virtual_machines.list_all()
    return {(str(one.name), str(one.vm_id)) for one in listed}


def insist_on_the_end(arm: LabArm, **data: t.Any) -> None:
    """The next run finishes what was begun; no machine was made twice, and what was there stays."""
    made, before = {*arm.show()["resources"]}, machines(arm)
    arm.azure.heal()
    assert tried(arm, **data) == []
    assert made <= {*arm.show()["resources"]}
    after = machines(arm)
    assert before <= after
    assert len(after) == len(SMALL["azure_machines"]) * 3
    assert run(arm, **data).done == []


# ---- what resources meet


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("TooManyRequests", {"type": f"{NET}/virtualNetworks", "count": 2, "retry_after_s": 0}),
        ("AuthorizationFailed", {"type": "Microsoft.KeyVault/vaults"}),
        ("ZonalAllocationFailed", {"type": VM, "name": "etcd-3"}),
        ("OSProvisioningTimedOut", {"type": VM, "name": "control-plane-2"}),
        ("InUseSubnetCannotBeUpdated", {"type": f"{NET}/virtualNetworks"}),
        ("DeploymentActive", {"type": "Microsoft.Compute/disks"}),
        ("DeploymentQuotaExceeded", {"type": f"{NET}/loadBalancers"}),
        ("ConflictError", {"type": "Microsoft.KeyVault/vaults"}),
        ("StorageAccountAlreadyTaken", {"type": "Microsoft.Storage/storageAccounts"}),
        ("DenyAssignmentAuthorizationFailed", {"type": f"{NET}/networkInterfaces"}),
        ("InternalServerError", {"type": VM, "late": True}),
    ],
)
def test_what_a_resource_meets_is_told_or_waited_out(arm: LabArm, code: str, about: dict[str, t.Any]) -> None:
    arm.fault(code, **about)
    problems = tried(arm, **DATA)
    # Tried again by itself, or told by its name.
    assert all(code in problem for problem in problems), problems
    insist_on_the_end(arm, **DATA)


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("InUseSubnetCannotBeDeleted", {"type": f"{NET}/networkInterfaces"}),
        ("AnotherOperationInProgress", {"type": VM}),
        ("DenyAssignmentAuthorizationFailed", {"type": VM}),
        ("InternalServerError", {"type": f"{NET}/networkInterfaces"}),
    ],
)
def test_a_deletion_that_fails_goes_on_in_the_next_run(
    arm: LabArm, code: str, about: dict[str, t.Any]
) -> None:
    assert run(arm, **MORE).problems == []
    there = {*arm.show()["resources"]}
    arm.fault(code, operation="delete", **about)
    problems = tried(arm, **GOES)
    assert all(code in problem for problem in problems), problems
    arm.azure.heal()
    assert tried(arm, **GOES) == []
    gone = there - {*arm.show()["resources"]}
    assert {one for one in gone if "spare-1" not in one} == set()
    assert [one for one in gone if one.endswith("/virtualMachines/spare-1")]
    assert run(arm, **GOES).done == []


# ---- what connections meet


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("lost_reply", {"method": "PUT", "count": 1}),
        ("status", {"status": 503, "retry_after": 0, "count": 3}),
        ("status", {"status": 500, "count": 2}),
        ("reset", {"method": "PUT", "count": 2}),
        ("truncated", {"method": "GET", "count": 2}),
        ("outage", {"count": 3}),
    ],
)
def test_what_a_connection_meets_is_survived(arm: LabArm, kind: str, settings: dict[str, t.Any]) -> None:
    arm.azure.fault(kind, service="management", **settings)
    tried(arm, **DATA)
    insist_on_the_end(arm, **DATA)


# ---- a controller that is killed


def kill(arm: LabArm, at: int, answered: bool, **data: t.Any) -> bool:
    """Return whether the run was killed; it may have ended before."""
    process = in_a_process(deploy_until, arm, data, at, answered)
    process.join(120)
    return process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
def test_a_controller_killed_around_any_request_of_a_deployment(arm: LabArm, answered: bool) -> None:
    arm.set(pace=0.01)
    reached = 0
    try:
        for at in range(2, 200, 2):
            arm.azure.do("arm_clear")
            if not kill(arm, at, answered, **DATA):
                break
            reached = at
            insist_on_the_end(arm, **DATA)
    finally:
        arm.set(pace=0.0)
    # A plan takes less: deployments were among those that were cut.
    assert reached > 15


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
def test_a_controller_killed_around_any_request_of_a_deletion(arm: LabArm, answered: bool) -> None:
    reached = 0
    for at in range(3, 200, 4):
        arm.azure.do("arm_clear")
        assert run(arm, **MORE).problems == []
        there = {*arm.show()["resources"]}
        if not kill(arm, at, answered, **GOES):
            break
        reached = at
        assert tried(arm, **GOES) == []
        gone = there - {*arm.show()["resources"]}
        assert {one for one in gone if "spare-1" not in one} == set()
        assert [one for one in gone if one.endswith("/virtualMachines/spare-1")]
        assert run(arm, **GOES).done == []
    assert reached > 10
