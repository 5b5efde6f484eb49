# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""The emulated resource manager as the Azure SDKs read it: each client, refusals, waiting, who may ask."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.keyvault import KeyVaultManagementClient
from azure.mgmt.msi import ManagedServiceIdentityClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.privatedns import PrivateDnsManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient
from azure.mgmt.resource.resources import ResourceManagementClient
from azure.mgmt.storage import StorageManagementClient

from ironspan.lab.azure import settings
from tests.support import lab_arm
from tests.support.lab_arm import REGION, SCOPE, LabArm, arm  # noqa: F401
from tests.support.lab_azure import MANAGEMENT, azure, running_azure  # noqa: F401

SPACE = {"location": REGION, "properties": {"addressSpace": {"addressPrefixes": ["10.5.0.0/16"]}}}
GUID = "6fa1c9c1-4a58-4b7e-9a4c-5f3a3a9d5c01"
READER = f"{SCOPE}/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"


@pytest.fixture
def group(arm: LabArm) -> str:
    """A resource group made by its SDK."""
    arm.client(ResourceManagementClient).resource_groups.create_or_update("one", {"location": REGION})
    return "one"


def deploy(arm: LabArm) -> None:
    body = {"location": REGION, "properties": {"mode": "Incremental", "template": lab_arm.estate()}}
    client = arm.client(DeploymentsMgmtClient)
    client.deployments.begin_create_or_update_at_subscription_scope("lab", body).result()


def test_every_client(arm: LabArm, group: str) -> None:
    network = arm.client(NetworkManagementClient)
    made = network.virtual_networks.begin_create_or_update(group, "net", SPACE).result()
    assert made.provisioning_state == "Succeeded"
    subnet = {"properties": {"addressPrefix": "10.5.0.0/24"}}
    assert network.subnets.begin_create_or_update(group, "net", "a", subnet).result().name == "a"
    identity = arm.client(ManagedServiceIdentityClient).user_assigned_identities.create_or_update(
        group, "one", {"location": REGION}
    )
    zone = arm.client(PrivateDnsManagementClient).private_zones.begin_create_or_update(
        group, "lab.internal", {"location": "global"}
    )
    assert zone.result().provisioning_state == "Succeeded"
    roles = arm.client(AuthorizationManagementClient).role_assignments
    about = {
        "role_definition_id": READER,
        "principal_id": identity.principal_id,
        "principal_type": "ServicePrincipal",
    }
    roles.create(lab_arm.group_id(group), GUID, about)
    assert [one.name for one in roles.list_for_scope(lab_arm.group_id(group))] == [GUID]
    vault = {"tenantId": settings.TENANT, "sku": {"family": "A", "name": "standard"}}
    vaults = arm.client(KeyVaultManagementClient).vaults
    assert vaults.begin_create_or_update(group, "kv-lab", {"location": REGION, "properties": vault}).result()
    accounts = arm.client(StorageManagementClient).storage_accounts
    assert not accounts.check_name_availability({"name": settings.ACCOUNT}).name_available
    body = {"location": REGION, "kind": "StorageV2", "sku": {"name": "Standard_ZRS"}}
    assert accounts.begin_create(group, "weights1", body).result().provisioning_state == "Succeeded"
    groups = arm.client(ResourceManagementClient).resource_groups
    assert groups.check_existence(group)
    groups.begin_delete(group).result()
    assert not groups.check_existence(group)
    assert arm.show()["resources"] == []


def test_a_machine_and_its_host_keys(arm: LabArm) -> None:
    deploy(arm)
    compute = arm.client(ComputeManagementClient)
    command = {"commandId": "RunShellScript", "script": ["cat /etc/ssh/*.pub"]}

    def keys() -> str:
        return str(
            compute.virtual_machines.begin_run_command("vms", "cp-1", command).result().value[0].message
        )

    first = keys()
    assert first.startswith("ssh-ed25519 ")
    assert keys() == first
    compute.virtual_machines.begin_deallocate("vms", "cp-1").result()
    view = compute.virtual_machines.instance_view("vms", "cp-1")
    assert [one.code for one in view.statuses] == ["ProvisioningState/succeeded", "PowerState/deallocated"]
    compute.virtual_machines.begin_delete("vms", "cp-1").result()
    deploy(arm)
    assert keys() != first
    calls = [tuple(one) for one in arm.show()["machines"]][-4:]
    assert calls == [("start", "cp-1"), ("stop", "cp-1"), ("remove", "cp-1"), ("start", "cp-1")]


def test_usages_and_sizes(arm: LabArm) -> None:
    arm.set(limits={"cores": 8}, restricted=["Standard_D4s_v5/1"])
    compute = arm.client(ComputeManagementClient)
    usages = {one.name.value: one.limit for one in compute.usage.list(REGION)}
    assert usages["cores"] == 8
    assert usages["standardNDSH100v5Family"] == 0
    sizes = {one.name: one for one in compute.resource_skus.list(filter=f"location eq '{REGION}'")}
    restriction = sizes["Standard_D4s_v5"].restrictions[0]
    assert (restriction.type, restriction.restriction_info.zones) == ("Zone", ["1"])
    with pytest.raises(HttpResponseError) as refused:
        deploy(arm)
    assert refused.value.error is not None
    assert refused.value.error.details[0].code == "SkuNotAvailable"
    assert arm.show()["resources"] == []


def test_a_throttled_request_is_sent_again(arm: LabArm, group: str) -> None:
    arm.fault("TooManyRequests", name="net", retry_after_s=0)
    patient = arm.client(NetworkManagementClient, retry_total=3)
    assert patient.virtual_networks.begin_create_or_update(group, "net", SPACE).result().name == "net"
    arm.fault("AnotherOperationInProgress", name="net", count=1)
    with pytest.raises(ResourceExistsError):
        patient.virtual_networks.begin_create_or_update(group, "net", SPACE)


def test_a_provider_that_is_not_registered(arm: LabArm, group: str) -> None:
    arm.azure.do("arm_unregister", provider="Microsoft.Network")
    providers = arm.client(ResourceManagementClient).providers
    assert providers.get("Microsoft.Network").registration_state == "NotRegistered"
    networks = arm.client(NetworkManagementClient).virtual_networks
    # These SDKs do not register it by themselves: they look at the answer before its body is read.
    with pytest.raises(ResourceExistsError, match="MissingSubscriptionRegistration"):
        networks.begin_create_or_update(group, "net", SPACE)
    assert providers.register("Microsoft.Network").registration_state == "Registered"
    assert networks.begin_create_or_update(group, "net", SPACE).result().name == "net"


def test_failures_late_and_early(arm: LabArm, group: str) -> None:
    network = arm.client(NetworkManagementClient)
    arm.fault("InternalServerError", name="net", late=True)
    with pytest.raises(HttpResponseError) as failed:
        network.virtual_networks.begin_create_or_update(group, "net", SPACE).result()
    assert failed.value.error is not None
    assert (failed.value.status_code, failed.value.error.code) == (200, "InternalServerError")
    with pytest.raises(HttpResponseError) as refused:
        network.virtual_networks.begin_create_or_update(group, "net", {**SPACE, "location": "moon"})
    assert refused.value.error is not None
    assert refused.value.error.code == "LocationNotAvailableForResourceType"
    with pytest.raises(ResourceNotFoundError):
        network.virtual_networks.get(group, "nothing")


@dataclasses.dataclass(frozen=True)
class Stranger:
    """A credential of another tenant."""

    arm: LabArm

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        about = {"identity": "operator", "audience": MANAGEMENT, "tenant": GUID}
        return AccessToken(self.arm.azure.do("token", **about)["token"], int(time.time()) + 600)


def test_who_may_ask(arm: LabArm) -> None:
    refused = LabArm(arm.azure, "reader").client(ResourceManagementClient)
    with pytest.raises(HttpResponseError) as denied:
        refused.resource_groups.get("one")
    assert denied.value.error is not None
    assert denied.value.error.code == "AuthorizationFailed"
    client = ResourceManagementClient(
        Stranger(arm),
        settings.SUBSCRIPTION,
        base_url=arm.azure.url("management"),
        connection_verify=str(arm.azure.ca),
        retry_total=0,
    )
    with pytest.raises(ClientAuthenticationError, match="InvalidAuthenticationTokenTenant"):
        client.resource_groups.get("one")


def test_requests_are_counted(arm: LabArm) -> None:
    before = len(arm.azure.requests("management"))
    assert list(arm.client(ResourceManagementClient).resource_groups.list()) == []
    assert len(arm.azure.requests("management")) == before + 1
