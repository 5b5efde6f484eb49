# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What takes time: operations one after the other, restarts, partial failure, stacks, deny settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ironspan.lab.azure.arm.faults import NamedFault
from tests.support import lab_arm
from tests.unit.lab.azure.arm.conftest import OWNER, Manager

DEPLOYMENT = f"{lab_arm.SCOPE}/providers/Microsoft.Resources/deployments/lab"
STACK = f"{lab_arm.SCOPE}/providers/Microsoft.Resources/deploymentStacks/lab"
BODY = {"location": lab_arm.REGION, "properties": {"mode": "Incremental", "template": lab_arm.estate()}}
OTHER = "6fa1c9c1-4a58-4b7e-9a4c-5f3a3a9d5c01"


@pytest.fixture
def slow(manager: Manager) -> Manager:
    """A subscription where things take as long as in Azure, and a clock that tests move."""
    manager.arm.state.settings.pace = 1.0
    return manager


def wait(manager: Manager, path: str, state: str, most: int = 40) -> list[str]:
    """Move the clock until a state is reached; returns the states that were seen."""
    seen: list[str] = []
    for _ in range(most):
        seen.append(manager.ask("GET", path)[1]["properties"]["provisioningState"])
        if seen[-1] == state:
            return seen
        manager.arm.state.offset_s += 5
    raise AssertionError(f"{path} is not {state}: {seen}")


def test_a_resource_is_busy_until_it_is_done(slow: Manager) -> None:
    slow.group()
    disk = lab_arm.resource_id("net", "Microsoft.Compute/disks", "d")
    body = {
        "location": lab_arm.REGION,
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
    }
    slow.arm.state.settings.retry_after_s = 7
    assert slow.put(disk, body)[0] == 202
    poll = slow.headers["azure-asyncoperation"].partition("localhost")[2].partition("?")[0]
    assert slow.headers["retry-after"] == "7"
    assert slow.ask("GET", poll)[1]["status"] == "Running"
    assert slow.code("PUT", disk, body) == "AnotherOperationInProgress"
    assert slow.headers["retry-after"] == "7"
    assert slow.code("DELETE", disk) == "AnotherOperationInProgress"
    wait(slow, disk, "Succeeded")
    assert slow.ask("GET", poll)[1]["status"] == "Succeeded"


def test_parts_wait_for_what_they_need_and_a_restart_goes_on(slow: Manager, tmp_path: Path) -> None:
    assert slow.ask("PUT", DEPLOYMENT, BODY)[0] == 201
    assert slow.code("PUT", DEPLOYMENT, BODY) == "DeploymentActive"
    for _ in range(6):
        slow.arm.state.offset_s += 3
        slow.ask("GET", DEPLOYMENT)
    there = {key.rpartition("/")[2] for key in slow.arm.state.resources}
    assert "nsg" in there
    assert lab_arm.MACHINE.lower() not in slow.arm.state.resources
    slow.arm.state.save()
    again = Manager(tmp_path)
    assert sorted(again.arm.state.resources) == sorted(slow.arm.state.resources)
    wait(again, DEPLOYMENT, "Succeeded")
    assert lab_arm.MACHINE.lower() in again.arm.state.resources
    assert again.arm.driver.calls == [("start", "cp-1")]  # type: ignore[attr-defined]


def test_cancel_starts_nothing_more(slow: Manager) -> None:
    slow.ask("PUT", DEPLOYMENT, BODY)
    slow.arm.state.offset_s += 3
    slow.ask("GET", DEPLOYMENT)
    assert slow.ask("POST", f"{DEPLOYMENT}/cancel", version="2026-06-01")[0] == 204
    wait(slow, DEPLOYMENT, "Canceled")
    assert lab_arm.MACHINE.lower() not in slow.arm.state.resources
    assert slow.code("POST", f"{DEPLOYMENT}/cancel", version="2026-06-01") == "DeploymentCannotBeCancelled"


def test_what_depends_on_a_failure_is_left_out_and_the_rest_is_made(manager: Manager) -> None:
    manager.arm.engine.faults.active = [NamedFault("RequestDisallowedByPolicy", name="vnet", count=None)]
    found = manager.deploy(lab_arm.estate())
    assert found["provisioningState"] == "Failed"
    assert found["error"]["code"] == "DeploymentFailed"
    inner = f"{lab_arm.group_id('net')}/providers/Microsoft.Resources/deployments/lab-net"
    listed = manager.ask("GET", f"{inner}/operations", version="2026-06-01")[1]["value"]
    states = {
        one["properties"]["targetResource"]["id"]: (
            one["properties"]["provisioningState"], one["properties"]["statusCode"],
        )
        for one in listed
    }  # fmt: skip
    assert states == {lab_arm.SECURITY: ("Succeeded", "Created"), lab_arm.NETWORK: ("Failed", "Forbidden")}
    manager.arm.engine.faults.active = []
    assert manager.deploy(lab_arm.estate())["provisioningState"] == "Succeeded"


@pytest.mark.parametrize("code", ["RetryableError", "AnotherOperationInProgress", "InternalServerError"])
def test_the_resource_manager_tries_again_itself(manager: Manager, code: str) -> None:
    manager.arm.engine.faults.active = [NamedFault(code, name="vnet", count=3)]
    assert manager.deploy(lab_arm.estate())["provisioningState"] == "Succeeded"
    manager.arm.engine.faults.active = [NamedFault(code, name="vnet", count=None)]
    assert manager.deploy(lab_arm.estate())["provisioningState"] == "Failed"


def test_a_stack_goes_through_its_states(slow: Manager) -> None:
    properties = {
        "template": lab_arm.estate(),
        "actionOnUnmanage": {"resources": "delete", "resourceGroups": "delete"},
        "denySettings": {"mode": "none"},
    }
    body = {"location": lab_arm.REGION, "properties": properties}
    assert slow.ask("PUT", STACK, body)[0] == 201
    assert slow.code("PUT", STACK, body) == "DeploymentStackInNonTerminalState"
    seen = wait(slow, STACK, "succeeded")
    assert seen[0] == "validating"
    assert "deploying" in seen
    properties["template"] = lab_arm.template([], True)
    assert slow.ask("PUT", STACK, body)[0] == 200
    seen = wait(slow, STACK, "succeeded")
    assert "deletingResources" in seen
    assert slow.arm.state.resources == {}


def test_a_stack_whose_template_is_wrong_fails_and_keeps_what_it_has(manager: Manager) -> None:
    manager.stack(lab_arm.estate())
    broken = lab_arm.estate()
    broken["resources"][2]["properties"]["template"]["resources"][0]["properties"]["securityRule"] = []
    found = manager.stack(broken)
    assert (found["provisioningState"], found["error"]["code"]) == ("failed", "InvalidTemplateDeployment")
    assert len(found["resources"]) == 9


DENIED: list[tuple[dict[str, Any], str, str, bool]] = [
    ({"mode": "none"}, "PUT", OTHER, False),
    ({"mode": "denyDelete"}, "PUT", OTHER, False),
    ({"mode": "denyDelete"}, "DELETE", OTHER, True),
    ({"mode": "denyWriteAndDelete"}, "PUT", OTHER, True),
    ({"mode": "denyWriteAndDelete", "excludedPrincipals": [OTHER]}, "PUT", OTHER, False),
    (
        {"mode": "denyWriteAndDelete", "excludedActions": ["Microsoft.Network/networkSecurityGroups/write"]},
        "PUT",
        OTHER,
        False,
    ),
    ({"mode": "denyWriteAndDelete"}, "PUT", OWNER, True),
]


@pytest.mark.parametrize(("deny", "method", "who", "denied"), DENIED)
def test_deny_settings(manager: Manager, deny: dict[str, Any], method: str, who: str, denied: bool) -> None:
    assert manager.stack(lab_arm.estate(), denySettings=deny)["provisioningState"] == "succeeded"
    body = {"location": lab_arm.REGION, "properties": {"securityRules": []}} if method == "PUT" else None
    status, answer = manager.ask(method, lab_arm.SECURITY, body, who=who)
    code = answer["error"]["code"] if answer and "error" in answer else ""
    assert (code == "DenyAssignmentAuthorizationFailed") is denied, (status, answer)
    again = manager.stack(lab_arm.estate(), denySettings=deny)
    assert again["provisioningState"] == "succeeded"


def test_deny_of_children(manager: Manager) -> None:
    subnet = f"{lab_arm.NETWORK}/subnets/more"
    body = {"properties": {"addressPrefix": "10.1.9.0/24"}}
    manager.stack(lab_arm.estate(), denySettings={"mode": "denyWriteAndDelete", "applyToChildScopes": True})
    assert manager.code("PUT", subnet, body, who=OTHER) == "DenyAssignmentAuthorizationFailed"


def test_deleting_a_stack(manager: Manager) -> None:
    manager.stack(lab_arm.estate())
    assert manager.ask("DELETE", STACK)[0] == 202
    assert manager.code("GET", STACK) == "DeploymentStackNotFound"
    assert len(manager.arm.state.resources) == 10
    manager.stack(lab_arm.estate())
    query = {"unmanageAction.Resources": "delete", "unmanageAction.ResourceGroups": "delete"}
    assert manager.ask("DELETE", STACK, **query)[0] == 202
    assert manager.code("GET", STACK) == "DeploymentStackNotFound"
    assert manager.arm.state.resources == {}
    assert manager.ask("DELETE", STACK)[0] == 204


def test_what_cannot_be_deleted_is_said(manager: Manager) -> None:
    manager.stack(lab_arm.estate())
    manager.arm.engine.faults.active = [
        NamedFault("InternalServerError", name="nsg", operation="delete", count=None)
    ]
    found = manager.stack(
        lab_arm.template([], True), actionOnUnmanage={"resources": "delete", "resourceGroups": "detach"}
    )
    assert (found["provisioningState"], found["error"]["code"]) == (
        "failed",
        "DeploymentStackDeleteResourcesFailed",
    )
    assert [one["id"] for one in found["failedResources"]] == [lab_arm.SECURITY]
    assert {one["id"]: one["status"] for one in found["resources"]} == {lab_arm.SECURITY: "deleteFailed"}


def test_a_resource_group_takes_everything_in_it(manager: Manager) -> None:
    manager.stack(lab_arm.estate(), denySettings={"mode": "denyDelete"})
    manager.arm.state.stacks.clear()
    assert manager.ask("DELETE", lab_arm.group_id("vms"))[0] == 202
    assert manager.code("PUT", lab_arm.DISK, {}) == "ResourceGroupNotFound"
    assert not {key for key in manager.arm.state.resources if "/vms" in key}
    assert ("remove", "cp-1") in manager.arm.driver.calls  # type: ignore[attr-defined]


def test_lists_that_lag(manager: Manager) -> None:
    manager.arm.state.settings.list_delay_s = 30
    manager.deploy(lab_arm.estate())
    listed = f"{lab_arm.SCOPE}/providers/Microsoft.Compute/virtualMachines"
    assert manager.ask("GET", listed, version="2026-04-01")[1]["value"] == []
    assert manager.ask("GET", lab_arm.MACHINE)[0] == 200
    manager.arm.state.offset_s += 31
    assert len(manager.ask("GET", listed, version="2026-04-01")[1]["value"]) == 1


def test_what_if_results_expire(manager: Manager) -> None:
    result = f"{lab_arm.SCOPE}/providers/Microsoft.Resources/deploymentStacksWhatIfResults/plan"
    properties = {
        "template": lab_arm.estate(),
        "actionOnUnmanage": {"resources": "detach"},
        "denySettings": {"mode": "none"},
        "deploymentStackResourceId": STACK,
        "retentionInterval": "PT1H",
    }
    body = {"location": lab_arm.REGION, "properties": properties}
    assert manager.ask("PUT", result, body)[0] == 201
    changes = manager.ask("GET", result)[1]["properties"]["changes"]["resourceChanges"]
    assert {one["changeType"] for one in changes} == {"create"}
    assert "resourceConfigurationChanges" not in changes[0]
    manager.arm.state.offset_s += 3601
    assert manager.code("GET", result) == "DeploymentStackWhatIfResultNotFound"
    properties["retentionInterval"] = "an hour"
    assert manager.code("PUT", result, body) == "InvalidRequestContent"
