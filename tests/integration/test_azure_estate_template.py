# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""The estate's deployment, taken by the emulated resource manager: all that an estate can have, and again."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient
from azure.mgmt.resource.deploymentstacks import DeploymentStacksClient

from ironspan.lab.azure import settings
from tests.integration.test_arm_deployments import plain, stack
from tests.support.lab_arm import SCOPE, LabArm, arm  # noqa: F401
from tests.support.lab_azure import azure, running_azure  # noqa: F401
from tests.unit.estate.conftest import PERSON, RICH, made


def rich() -> dict[str, Any]:
    """The template of an estate with something of everything that the emulated Azure has."""
    known = json.dumps(RICH).replace(PERSON, settings.IDENTITIES["operator"].object_id)
    here = {"azure_subscription": settings.SUBSCRIPTION, "azure_tenant": settings.TENANT}
    return template(made(**here, **json.loads(known)))


def predicted(arm: LabArm, body: dict[str, Any], name: str) -> dict[str, str]:
    """Resource id -> change, by what-if of the stack."""
    scope = f"{SCOPE}/providers/Microsoft.Resources/deploymentStacks/{name}"
    asked = {**body, "properties": {**body["properties"], "deploymentStackResourceId": scope}}
    asked["properties"]["retentionInterval"] = "PT2H"
    results = arm.client(DeploymentStacksClient).deployment_stacks_what_if_results_at_subscription
    results.begin_create_or_update("plan", asked).result()
    found = results.begin_what_if("plan").result()
    return {one.id: str(one.change_type.value) for one in found.properties.changes.resource_changes}


def test_it_is_taken_and_the_second_time_nothing_changes(arm: LabArm) -> None:
    stacks = arm.client(DeploymentStacksClient)
    body = stack(rich())
    stacks.deployment_stacks.begin_validate_stack_at_subscription("ironspan-example", body).result()
    first = stacks.deployment_stacks.begin_create_or_update_at_subscription("ironspan-example", body).result()
    assert first.properties.provisioning_state.value == "succeeded"
    assert set(predicted(arm, body, "ironspan-example").values()) == {"noChange"}


def test_a_plain_deployment_has_the_addresses_of_the_plan(arm: LabArm) -> None:
    deployments = arm.client(DeploymentsMgmtClient).deployments
    done = deployments.begin_create_or_update_at_subscription_scope(
        "ironspan-example", plain(rich())
    ).result()
    assert done.properties.provisioning_state.value == "Succeeded"
    interfaces = arm.client(NetworkManagementClient).network_interfaces
    found = interfaces.get("ironspan-example-machines", "ironspan-example-nic-etcd-1")
    assert found.ip_configurations[0].private_ip_address == "10.20.0.16"
