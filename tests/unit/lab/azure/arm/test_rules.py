# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the resource manager refuses, as Azure words it, and what comes with what."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ironspan.lab.azure import settings
from tests.support import lab_arm
from tests.support.lab_arm import REGION, group_id, resource_id
from tests.unit.lab.azure.arm.conftest import Manager

VAULT = resource_id("net", "Microsoft.KeyVault/vaults", "kv-lab")
ACCOUNT = resource_id("net", "Microsoft.Storage/storageAccounts", "weights1")
READER = (
    f"{lab_arm.SCOPE}/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"
)
GUID = "6fa1c9c1-4a58-4b7e-9a4c-5f3a3a9d5c0"


def named(resources: list[dict[str, Any]], index: int, **changes: Any) -> dict[str, Any]:
    """A resource of a template as a body, with other properties."""
    body = copy.deepcopy(resources[index])
    for name in ("type", "apiVersion", "name", "dependsOn"):
        body.pop(name, None)
    body["properties"] = {**body.get("properties", {}), **changes}
    return body


def interface(address: str, subnet: str = "control") -> dict[str, Any]:
    configuration = {
        "subnet": {"id": f"{lab_arm.NETWORK}/subnets/{subnet}"},
        "privateIPAddress": address,
        "privateIPAllocationMethod": "Static",
    }
    return {
        "location": REGION,
        "properties": {"ipConfigurations": [{"name": "a", "properties": configuration}]},
    }


def other(name: str, type: str = "Microsoft.Network/networkInterfaces") -> str:
    return resource_id("vms", type, name)


def network(*prefixes: str) -> dict[str, Any]:
    subnets = [{"name": f"s{i}", "properties": {"addressPrefix": one}} for i, one in enumerate(prefixes)]
    space = {"addressPrefixes": ["10.2.0.0/16"]}
    return {"location": REGION, "properties": {"addressSpace": space, "subnets": subnets}}


def security(*priorities: int) -> dict[str, Any]:
    rules = [lab_arm.rule(f"r{number}", one, "22") for number, one in enumerate(priorities)]
    return {"location": REGION, "properties": {"securityRules": rules}}


def sized(size: str) -> dict[str, Any]:
    return {**SECOND, "properties": {**SECOND["properties"], "hardwareProfile": {"vmSize": size}}}


def vault(**changes: Any) -> dict[str, Any]:
    properties = {"tenantId": settings.TENANT, "sku": {"family": "A", "name": "standard"}, **changes}
    return {"location": REGION, "properties": properties}


def account(**changes: Any) -> dict[str, Any]:
    return {"location": REGION, "kind": "StorageV2", "sku": {"name": "Standard_ZRS"}, "properties": changes}


def assignment(**changes: Any) -> dict[str, Any]:
    properties = {"roleDefinitionId": READER, "principalId": f"{GUID}9", "principalType": "ServicePrincipal"}
    return {"properties": {**properties, **changes}}


BESIDE = resource_id("net", "Microsoft.Network/virtualNetworks", "b1")
RULES = resource_id("net", "Microsoft.Network/networkSecurityGroups", "b")
NEXT = other("cp-2", "Microsoft.Compute/virtualMachines")
NOWHERE = f"{group_id('none')}/providers/Microsoft.Network/networkInterfaces/a"
MACHINE = named(lab_arm.machine_resources(), 3)
SECOND = {**MACHINE, "properties": {**MACHINE["properties"], "networkProfile": {"networkInterfaces": []}}}
ROLES = f"{group_id('net')}/providers/Microsoft.Authorization/roleAssignments"

REFUSED: list[tuple[str, str, str, Any]] = [
    ("PUT", other("n1"), "PrivateIPAddressNotInSubnet", interface("10.9.0.1")),
    ("PUT", other("n1"), "PrivateIPAddressInReservedRange", interface("10.1.0.3")),
    ("PUT", other("n1"), "PrivateIPAddressInReservedRange", interface("10.1.0.255")),
    ("PUT", other("n1"), "PrivateIPAddressIsAllocated", interface("10.1.0.11")),
    ("PUT", other("n1"), "PrivateIPAddressIsAllocated", interface("10.1.0.10")),
    ("PUT", other("n1"), "InvalidIPAddressFormat", interface("10.1.0")),
    ("PUT", other("n1"), "InvalidResourceReference", interface("10.1.0.9", "nowhere")),
    ("PUT", other("_n1"), "InvalidResourceName", interface("10.1.0.9")),
    ("PUT", NOWHERE, "ResourceGroupNotFound", interface("10.1.0.9")),
    ("DELETE", lab_arm.NETWORK, "InUseSubnetCannotBeDeleted", None),
    ("DELETE", f"{lab_arm.NETWORK}/subnets/control", "InUseSubnetCannotBeDeleted", None),
    (
        "PUT",
        lab_arm.NETWORK,
        "InUseSubnetCannotBeDeleted",
        {
            **network("10.1.1.0/24"),
            "properties": {"addressSpace": {"addressPrefixes": ["10.1.0.0/16"]}, "subnets": []},
        },
    ),
    ("DELETE", lab_arm.SECURITY, "InUseNetworkSecurityGroupCannotBeDeleted", None),
    ("DELETE", lab_arm.BALANCER, "InUseLoadBalancerCannotBeDeleted", None),
    ("DELETE", lab_arm.INTERFACE, "NicInUse", None),
    ("DELETE", lab_arm.DISK, "OperationNotAllowed", None),
    ("PUT", BESIDE, "NetcfgInvalidSubnet", network("10.3.0.0/24")),
    ("PUT", BESIDE, "NetcfgInvalidSubnet", network("10.2.0.0/30")),
    ("PUT", BESIDE, "NetcfgSubnetRangesOverlap", network("10.2.0.0/24", "10.2.0.128/25")),
    ("PUT", BESIDE, "InvalidCIDRNotation", network("10.2.0.1/24")),
    ("PUT", lab_arm.NETWORK, "InvalidResourceLocation", {**network(), "location": "northeurope"}),
    ("PUT", lab_arm.NETWORK, "LocationNotAvailableForResourceType", {**network(), "location": "moon"}),
    ("PUT", RULES, "SecurityRuleConflict", security(100, 100)),
    ("PUT", RULES, "SecurityRuleInvalidPriority", security(99)),
    ("PUT", NEXT, "NicInUse", MACHINE),
    ("PUT", NEXT, "ConflictingUserInput", SECOND),
    ("PUT", lab_arm.MACHINE, "PropertyChangeNotAllowed", {**MACHINE, "zones": ["2"]}),
    ("PUT", NEXT, "AvailabilityZoneNotSupported", {**SECOND, "zones": ["4"]}),
    ("PUT", NEXT, "InvalidParameter", sized("Standard_Z1")),
    ("PUT", NEXT, "QuotaExceeded", sized("Standard_ND96isr_H100_v5")),
    ("PUT", lab_arm.DISK, "OperationNotAllowed", named(lab_arm.machine_resources(), 2, diskSizeGB=32)),
    (
        "PUT",
        other("d2", "Microsoft.Compute/disks"),
        "InvalidParameter",
        {
            "location": REGION,
            "sku": {"name": "PremiumV2_LRS"},
            "properties": {"creationData": {"createOption": "Empty"}},
        },
    ),
    ("PUT", VAULT, "BadRequest", vault(tenantId=f"{GUID}1")),
    ("PUT", resource_id("net", "Microsoft.KeyVault/vaults", "kv--lab"), "VaultNameNotValid", vault()),
    (
        "PUT",
        resource_id("net", "Microsoft.Storage/storageAccounts", settings.ACCOUNT),
        "StorageAccountAlreadyTaken",
        account(),
    ),
    (
        "PUT",
        resource_id("net", "Microsoft.Storage/storageAccounts", "Weights"),
        "AccountNameInvalid",
        account(),
    ),
    ("PUT", f"{ROLES}/{GUID}1", "RoleDefinitionDoesNotExist", assignment(roleDefinitionId=f"{READER[:-1]}0")),
    ("PUT", f"{ROLES}/{GUID}1", "PrincipalNotFound", assignment(principalType=None)),
    ("PUT", f"{ROLES}/one", "InvalidRoleAssignmentId", assignment()),
    ("GET", other("nothing"), "ResourceNotFound", None),
    ("GET", group_id("nothing"), "ResourceGroupNotFound", None),
    ("DELETE", group_id("nothing"), "ResourceGroupNotFound", None),
    ("PUT", f"/subscriptions/{GUID}1/resourceGroups/net", "SubscriptionNotFound", {"location": REGION}),
    (
        "PUT",
        f"{lab_arm.SCOPE}/resourceGroups/net/providers/Microsoft.Nothing/a/b",
        "InvalidResourceNamespace",
        {},
    ),
]


@pytest.mark.parametrize(("method", "path", "code", "body"), REFUSED)
def test_what_is_refused(estate: Manager, method: str, path: str, code: str, body: Any) -> None:
    before = sorted(estate.arm.state.resources)
    assert estate.code(method, path, body) == code
    assert sorted(estate.arm.state.resources) == before


def test_a_version_that_the_type_lacks(estate: Manager) -> None:
    assert estate.code("GET", lab_arm.NETWORK, version="2020-01-01") == "NoRegisteredProviderFound"


def test_a_provider_is_registered_first(manager: Manager) -> None:
    manager.group()
    manager.arm.state.registered.discard("Microsoft.KeyVault")
    assert manager.code("PUT", VAULT, vault()) == "MissingSubscriptionRegistration"
    register = f"{lab_arm.SCOPE}/providers/Microsoft.KeyVault"
    assert manager.ask("POST", f"{register}/register")[1]["registrationState"] == "Registered"
    assert manager.put(VAULT, vault())[0] == 201


def test_a_second_deployment_changes_nothing(estate: Manager) -> None:
    before = copy.deepcopy({key: one.document for key, one in estate.arm.state.resources.items()})
    assert estate.deploy(lab_arm.estate())["provisioningState"] == "Succeeded"
    assert {key: one.document for key, one in estate.arm.state.resources.items()} == before


def test_a_pool_has_the_interfaces_that_name_it(estate: Manager) -> None:
    pool = estate.ask("GET", lab_arm.BALANCER)[1]["properties"]["backendAddressPools"][0]
    assert pool["properties"]["backendIPConfigurations"] == [
        {"id": f"{lab_arm.INTERFACE}/ipConfigurations/first"}
    ]


def test_the_disk_of_etcd_outlives_its_machine(estate: Manager) -> None:
    disk = estate.ask("GET", lab_arm.DISK)[1]
    assert disk["managedBy"] == lab_arm.MACHINE
    assert estate.ask("DELETE", lab_arm.MACHINE)[0] == 202
    after = estate.ask("GET", lab_arm.DISK)[1]
    assert "managedBy" not in after
    assert after["properties"]["diskState"] == "Unattached"
    left = {key.rpartition("/")[2] for key in estate.arm.state.resources if "/disks/" in key}
    assert left == {"cp-1-etcd"}
    assert estate.ask("DELETE", lab_arm.DISK)[0] == 202


def test_a_new_identity_of_an_old_name_is_another_principal(estate: Manager) -> None:
    before = estate.ask("GET", lab_arm.IDENTITY)[1]["properties"]["principalId"]
    assert estate.ask("DELETE", lab_arm.IDENTITY)[0] == 200
    assert estate.put(lab_arm.IDENTITY, {"location": REGION})[1]["properties"]["principalId"] != before


def test_roles_take_time_to_be_seen(estate: Manager) -> None:
    estate.arm.state.settings.role_delay_s = 60
    assert estate.put(f"{ROLES}/{GUID}1", assignment())[0] == 201
    assert estate.code("GET", f"{ROLES}/{GUID}1") == "ResourceNotFound"
    assert estate.ask("GET", ROLES, version="2022-04-01")[1]["value"] == []
    identity = resource_id("vms", "Microsoft.ManagedIdentity/userAssignedIdentities", "new")
    principal = estate.put(identity, {"location": REGION})[1]["properties"]["principalId"]
    body = assignment(principalId=principal, principalType=None)
    assert estate.code("PUT", f"{ROLES}/{GUID}2", body) == "PrincipalNotFound"
    estate.arm.state.offset_s += 61
    assert estate.put(f"{ROLES}/{GUID}2", body)[0] == 201
    assert len(estate.ask("GET", ROLES, version="2022-04-01")[1]["value"]) == 1
    estate.arm.state.offset_s += 61
    assert len(estate.ask("GET", ROLES, version="2022-04-01")[1]["value"]) == 2
    assert estate.code("PUT", f"{ROLES}/{GUID}3", assignment()) == "RoleAssignmentExists"
    changed = assignment(principalId=principal)
    assert estate.code("PUT", f"{ROLES}/{GUID}1", changed) == "RoleAssignmentUpdateNotPermitted"


def test_a_deleted_vault_keeps_its_name(manager: Manager) -> None:
    manager.group()
    assert manager.put(VAULT, vault(enablePurgeProtection=True))[0] == 201
    assert manager.code("PUT", VAULT, vault(enablePurgeProtection=False)) == "BadRequest"
    assert manager.ask("DELETE", VAULT)[0] == 200
    assert manager.code("PUT", VAULT, vault()) == "ConflictError"
    deleted = f"{lab_arm.SCOPE}/providers/Microsoft.KeyVault/locations/{REGION}/deletedVaults/kv-lab"
    assert manager.ask("GET", deleted)[1]["properties"]["purgeProtectionEnabled"] is True
    assert manager.code("POST", f"{deleted}/purge") == "DeletedVaultPurgeProtected"
    status, back = manager.put(VAULT, vault(createMode="recover"))
    assert (status, back["properties"]["enablePurgeProtection"]) == (201, True)


def test_a_key_is_made_once(manager: Manager) -> None:
    manager.group()
    manager.put(VAULT, vault())
    first = manager.put(f"{VAULT}/keys/kms", {"properties": {"kty": "RSA", "keySize": 3072}})[1]
    again = manager.put(f"{VAULT}/keys/kms", {"properties": {"kty": "RSA", "keySize": 2048}})[1]
    assert again == first


def test_a_private_endpoint_has_an_address_and_a_name(estate: Manager) -> None:
    zone = resource_id("net", "Microsoft.Network/privateDnsZones", "privatelink.blob.core.windows.net")
    endpoint = resource_id("net", "Microsoft.Network/privateEndpoints", "blob")
    assert estate.put(ACCOUNT, account())[0] == 202
    estate.put(zone, {"location": "global"})
    properties = {
        "subnet": {"id": f"{lab_arm.NETWORK}/subnets/endpoints"},
        "privateLinkServiceConnections": [
            {"name": "a", "properties": {"privateLinkServiceId": ACCOUNT, "groupIds": ["blob"]}}
        ],
    }
    assert estate.put(endpoint, {"location": REGION, "properties": properties})[0] == 201
    group = {"privateDnsZoneConfigs": [{"name": "blob", "properties": {"privateDnsZoneId": zone}}]}
    assert estate.put(f"{endpoint}/privateDnsZoneGroups/default", {"properties": group})[0] == 201
    record = estate.ask("GET", f"{zone}/A/weights1")[1]
    assert record["properties"]["aRecords"] == [{"ipv4Address": "10.1.1.4"}]
    assert (
        estate.code("PUT", other("n1"), interface("10.1.1.4", "endpoints")) == "PrivateIPAddressIsAllocated"
    )


def scale_set(capacity: int, **profile: Any) -> dict[str, Any]:
    """A flexible scale set."""
    machine = {
        "osProfile": {"computerNamePrefix": "burst", "adminUsername": "ironspan"},
        "storageProfile": {"osDisk": {"createOption": "FromImage"}},
        "networkProfile": {
            "networkApiVersion": "2022-11-01",
            "networkInterfaceConfigurations": [
                {
                    "name": "first",
                    "properties": {
                        "primary": True,
                        "ipConfigurations": [
                            {
                                "name": "a",
                                "properties": {"subnet": {"id": f"{lab_arm.NETWORK}/subnets/endpoints"}},
                            }
                        ],
                    },
                }
            ],
        },
        **profile,
    }
    return {
        "location": REGION,
        "zones": ["1", "2"],
        "tags": {"ironspan-pool": "burst"},
        "sku": {"name": "Standard_D4s_v5", "capacity": capacity},
        "properties": {
            "orchestrationMode": "Flexible",
            "platformFaultDomainCount": 1,
            "virtualMachineProfile": machine,
        },
    }


def test_instances_of_a_scale_set_are_machines(estate: Manager) -> None:
    id = other("burst", "Microsoft.Compute/virtualMachineScaleSets")
    assert estate.put(id, scale_set(3))[0] == 201
    listed = f"{group_id('vms')}/providers/Microsoft.Compute/virtualMachines"

    def instances() -> list[dict[str, Any]]:
        found = estate.ask("GET", listed, version="2026-04-01")[1]["value"]
        return [one for one in found if "virtualMachineScaleSet" in one["properties"]]

    there = instances()
    assert sorted(one["zones"][0] for one in there) == ["1", "1", "2"]
    assert {one["properties"]["virtualMachineScaleSet"]["id"] for one in there} == {id}
    assert there[0]["tags"] == {"ironspan-pool": "burst"}
    assert estate.ask("PATCH", id, {"sku": {"capacity": 1}})[0] == 200
    assert len(instances()) == 1
    too_many = scale_set(40)
    assert estate.code("PUT", id, too_many) == "QuotaExceeded"
    assert estate.ask("DELETE", id)[0] == 202
    assert instances() == []


def test_power(estate: Manager) -> None:
    def power() -> str:
        return str(
            estate.ask("GET", f"{lab_arm.MACHINE}/instanceView", version="2026-04-01")[1]["statuses"][1][
                "code"
            ]
        )

    for action, after in (("deallocate", "deallocated"), ("start", "running"), ("powerOff", "stopped")):
        assert estate.ask("POST", f"{lab_arm.MACHINE}/{action}", version="2026-04-01")[0] == 202
        assert power() == f"PowerState/{after}"
    command = {"commandId": "RunShellScript", "script": ["cat"]}
    run = f"{lab_arm.MACHINE}/runCommand"
    assert estate.code("POST", run, command, version="2026-04-01") == "OperationNotAllowed"


def test_faults_by_name(manager: Manager) -> None:
    from ironspan.lab.azure.arm.faults import NAMED, NamedFault

    manager.group("vms")
    for code, (status, _, late) in NAMED.items():
        manager.arm.engine.faults.active = [NamedFault(code, name="n1", retry_after_s=0)]
        disk = other("n1", "Microsoft.Compute/disks")
        body = {
            "location": REGION,
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
        }
        answer, document = manager.put(disk, body)
        if late:
            assert answer in (200, 202)
            assert manager.ask("GET", disk)[1]["properties"]["provisioningState"] == "Failed"
            assert manager.ask("DELETE", disk)[0] == 202  # from any state
        else:
            assert (answer, document["error"]["code"]) == (status, code)
            assert manager.headers["retry-after"] == "0"
        assert manager.put(disk, body)[0] in (200, 202)
        manager.ask("DELETE", disk)
        manager.arm.engine.advance()
