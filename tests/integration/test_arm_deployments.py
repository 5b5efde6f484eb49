# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""The emulated resource manager as the Azure SDKs see it: deployments, stacks and what-if of both."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient
from azure.mgmt.resource.deploymentstacks import DeploymentStacksClient

from tests.support import lab_arm
from tests.support.lab_arm import REGION, SCOPE, LabArm, arm  # noqa: F401
from tests.support.lab_azure import azure, running_azure  # noqa: F401

STACK = f"{SCOPE}/providers/Microsoft.Resources/deploymentStacks/lab"


def plain(template: dict[str, Any]) -> dict[str, Any]:
    """The body of a deployment to the subscription."""
    return {"location": REGION, "properties": {"mode": "Incremental", "template": template}}


def stack(
    template: dict[str, Any], action: str = "detach", deny: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The body of a stack."""
    return {
        "location": REGION,
        "properties": {
            "template": template,
            "actionOnUnmanage": {"resources": action, "resourceGroups": action, "managementGroups": "detach"},
            "denySettings": deny or {"mode": "none"},
        },
    }


def predicted(arm: LabArm, body: dict[str, Any]) -> dict[str, str]:
    """Resource id -> change, by what-if of the stack."""
    asked = copy.deepcopy(body)
    asked["properties"].update(deploymentStackResourceId=STACK, retentionInterval="PT2H")
    results = arm.client(DeploymentStacksClient).deployment_stacks_what_if_results_at_subscription
    results.begin_create_or_update("plan", asked).result()
    found = results.begin_what_if("plan").result()
    results.delete("plan")
    return {one.id: str(one.change_type.value) for one in found.properties.changes.resource_changes}


@pytest.fixture
def deployments(arm: LabArm) -> Any:
    return arm.client(DeploymentsMgmtClient)


@pytest.fixture
def stacks(arm: LabArm) -> Any:
    return arm.client(DeploymentStacksClient).deployment_stacks


def test_a_plain_deployment(arm: LabArm, deployments: Any) -> None:
    body = plain(lab_arm.estate())
    deployments.deployments.begin_validate_at_subscription_scope("lab", body).result()
    before = deployments.deployments.begin_what_if_at_subscription_scope("lab", body).result()
    assert {one.change_type.value for one in before.changes} == {"Create"}
    assert len(before.changes) == 9
    done = deployments.deployments.begin_create_or_update_at_subscription_scope("lab", body).result()
    assert done.properties.provisioning_state.value == "Succeeded"
    assert len(done.properties.output_resources) == 9
    inner = deployments.deployment_operations.list("net", "lab-net")
    assert [one.properties.provisioning_state for one in inner] == ["Succeeded"] * 3
    machine = arm.client(ComputeManagementClient).virtual_machines.get("vms", "cp-1")
    assert machine.zones == ["1"]
    assert machine.identity.user_assigned_identities[lab_arm.IDENTITY].principal_id


def test_plain_what_if_has_the_noise_of_azure(arm: LabArm, deployments: Any) -> None:
    body = plain(lab_arm.estate())
    deployments.deployments.begin_create_or_update_at_subscription_scope("lab", body).result()
    after = deployments.deployments.begin_what_if_at_subscription_scope("lab", body).result()
    noisy = {
        one.resource_id: {x.path for x in one.delta} for one in after.changes if one.change_type == "Modify"
    }
    assert noisy[lab_arm.SECURITY] == {"properties.securityRules"}
    assert "properties.osProfile.requireGuestProvisionSignal" in noisy[lab_arm.MACHINE]
    ignored = [one.resource_id for one in after.changes if one.change_type == "Ignore"]
    assert [one.rpartition("/")[2] for one in ignored] == ["cp-1_OsDisk_1"]


def test_a_stack_and_its_what_if(arm: LabArm, stacks: Any) -> None:
    body = stack(lab_arm.estate())
    assert set(predicted(arm, body).values()) == {"create"}
    made = stacks.begin_create_or_update_at_subscription("lab", body).result()
    assert made.properties.provisioning_state.value == "succeeded"
    assert {one.status.value for one in made.properties.resources} == {"managed"}
    assert set(predicted(arm, body).values()) == {"noChange"}
    changed = stack(lab_arm.estate(lab_arm.network_resources([lab_arm.rule("ssh", 200, "22")])))
    assert {id for id, change in predicted(arm, changed).items() if change == "modify"} == {lab_arm.SECURITY}


@pytest.mark.parametrize(("action", "there"), [("detach", True), ("delete", False)])
def test_what_leaves_a_stack(arm: LabArm, stacks: Any, action: str, there: bool) -> None:
    stacks.begin_create_or_update_at_subscription("lab", stack(lab_arm.estate())).result()
    smaller = stack(lab_arm.estate(machines=lab_arm.machine_resources()[:1]), action)
    changes = predicted(arm, smaller)
    assert changes[lab_arm.MACHINE] == ("detach" if there else "delete")
    after = stacks.begin_create_or_update_at_subscription("lab", smaller).result().properties
    gone = after.detached_resources if there else after.deleted_resources
    assert {one.id for one in gone} == {lab_arm.MACHINE, lab_arm.DISK, lab_arm.INTERFACE}
    assert (lab_arm.MACHINE in arm.show()["resources"]) is there
    assert (["remove", "cp-1"] in arm.show()["machines"]) is not there


def test_partial_failure(arm: LabArm, stacks: Any, deployments: Any) -> None:
    arm.fault("OverconstrainedZonalAllocationRequest", type="Microsoft.Compute/virtualMachines")
    with pytest.raises(HttpResponseError) as failed:
        stacks.begin_create_or_update_at_subscription("lab", stack(lab_arm.estate())).result()
    assert failed.value.error is not None
    assert failed.value.error.code == "DeploymentStackDeploymentFailed"
    seen = stacks.get_at_subscription("lab").properties
    assert lab_arm.NETWORK in {one.id for one in seen.resources}
    states = {
        one.properties.target_resource.id: one.properties.provisioning_state
        for one in deployments.deployment_operations.list("vms", "lab-vms")
    }
    assert states[lab_arm.MACHINE] == "Failed"
    assert states[lab_arm.INTERFACE] == "Succeeded"
    again = stacks.begin_create_or_update_at_subscription("lab", stack(lab_arm.estate())).result()
    assert again.properties.provisioning_state.value == "succeeded"
