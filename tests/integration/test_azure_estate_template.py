# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""The estate's deployment, taken by the emulated resource manager: all that an estate can have, and again."""

from __future__ import annotations

from typing import Any

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient
from azure.mgmt.resource.deploymentstacks import DeploymentStacksClient

from ironspan.lab.azure import settings
from tests.integration.test_arm_deployments import plain, stack
from tests.support.lab_arm import LabArm, arm  # noqa: F401
from tests.support.lab_azure import azure, running_azure  # noqa: F401
from tests.unit.estate.conftest import RICH, made


def rich() -> dict[str, Any]:
    """The template of an estate with something of everything that the emulated Azure has."""
    here = {"azure_subscription": settings.SUBSCRIPTION, "azure_tenant": settings.TENANT}
    return template(made(**here, **RICH))


def test_it_is_taken_and_the_second_time_nothing_changes(arm: LabArm) -> None:
    stacks = arm.client(DeploymentStacksClient)
    body = stack(rich())
    stacks.deployment_stacks.begin_validate_stack_at_subscription("ironspan-example", body).result()
    first = stacks.deployment_stacks.begin_create_or_update_at_subscription("ironspan-example", body).result()
    assert first.properties.provisioning_state.value == "succeeded"
    before = arm.show()
    again = stacks.deployment_stacks.begin_create_or_update_at_subscription("ironspan-example", body).result()
    assert again.properties.provisioning_state.value == "succeeded"
    assert {one.id for one in again.properties.resources} == {one.id for one in first.properties.resources}
    assert len(before) > 0


def test_a_plain_deployment_has_the_addresses_of_the_plan(arm: LabArm) -> None:
    deployments = arm.client(DeploymentsMgmtClient).deployments
    done = deployments.begin_create_or_update_at_subscription_scope(
        "ironspan-example", plain(rich())
    ).result()
    assert done.properties.provisioning_state.value == "Succeeded"
    interfaces = arm.client(NetworkManagementClient).network_interfaces
    found = interfaces.get("ironspan-example-machines", "ironspan-example-nic-etcd-1")
    assert found.ip_configurations[0].private_ip_address == "10.20.0.16"
