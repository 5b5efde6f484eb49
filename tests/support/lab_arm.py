# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The emulated resource manager for tests: clients of the real SDKs, and a template that has every type.

A test module asks for the fixture by importing it, together with those of `lab_azure`:

    from tests.support.lab_arm import arm  # noqa: F401
    from tests.support.lab_azure import azure, running_azure  # noqa: F401
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from ironspan.lab.azure import settings
from tests.support.lab_azure import MANAGEMENT, Credential, LabAzure

SCOPE = f"/subscriptions/{settings.SUBSCRIPTION}"
REGION = "westeurope"


@dataclasses.dataclass(frozen=True)
class LabArm:
    """The resource manager of a running emulated Azure."""

    azure: LabAzure
    identity: str = "operator"

    def client(self, kind: Any, **options: Any) -> Any:
        """A client of an SDK (its class) that polls without waiting and does not retry."""
        return kind(
            Credential(self.azure, self.identity, MANAGEMENT),
            settings.SUBSCRIPTION,
            **{
                "base_url": self.azure.url("management"),
                "connection_verify": str(self.azure.ca),
                "polling_interval": 0,
                "retry_total": 0,
                **options,
            },
        )

    def set(self, **settings: Any) -> None:
        """Change settings of the resource manager (see ironspan.lab.azure.arm.state.Settings)."""
        self.azure.do("arm_set", **settings)

    def fault(self, code: str, **about: Any) -> None:
        """Let resources meet a named fault."""
        self.azure.do("arm_fault", code=code, **about)

    def show(self) -> dict[str, Any]:
        """Everything that the control endpoint tells of it."""
        return self.azure.do("arm")


@pytest.fixture
def arm(azure: LabAzure) -> Iterator[LabArm]:
    """The emulated resource manager with an empty subscription."""
    azure.do("arm_clear")
    yield LabArm(azure)
    azure.do("arm_clear")


def group_id(group: str) -> str:
    """The id of a resource group."""
    return f"{SCOPE}/resourceGroups/{group}"


def resource_id(group: str, type: str, *names: str) -> str:
    """The id of a resource."""
    provider, *types = type.split("/")
    pairs = "/".join(f"{kind}/{name}" for kind, name in zip(types, names, strict=True))
    return f"{group_id(group)}/providers/{provider}/{pairs}"


def template(resources: list[dict[str, Any]], subscription: bool = False) -> dict[str, Any]:
    """A template of these resources."""
    kind = "2018-05-01/subscriptionDeploymentTemplate" if subscription else "2019-04-01/deploymentTemplate"
    return {
        "$schema": f"https://schema.management.azure.com/schemas/{kind}.json#",
        "contentVersion": "1.0.0.0",
        "resources": resources,
    }


def nested(name: str, group: str, resources: list[dict[str, Any]], waits: list[str]) -> dict[str, Any]:
    """A nested deployment into a resource group."""
    return {
        "type": "Microsoft.Resources/deployments",
        "apiVersion": "2025-04-01",
        "name": name,
        "resourceGroup": group,
        "dependsOn": waits,
        "properties": {
            "mode": "Incremental",
            "expressionEvaluationOptions": {"scope": "inner"},
            "template": template(resources),
        },
    }


def _network(type: str, name: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": f"Microsoft.Network/{type}",
        "apiVersion": "2026-03-01",
        "name": name,
        "location": REGION,
        "properties": properties,
        **more,
    }


NETWORK = resource_id("net", "Microsoft.Network/virtualNetworks", "vnet")
SECURITY = resource_id("net", "Microsoft.Network/networkSecurityGroups", "nsg")
BALANCER = resource_id("net", "Microsoft.Network/loadBalancers", "lb")
INTERFACE = resource_id("vms", "Microsoft.Network/networkInterfaces", "cp-1")
MACHINE = resource_id("vms", "Microsoft.Compute/virtualMachines", "cp-1")
DISK = resource_id("vms", "Microsoft.Compute/disks", "cp-1-etcd")
IDENTITY = resource_id("vms", "Microsoft.ManagedIdentity/userAssignedIdentities", "cp-1")


def rule(name: str, priority: int, port: str) -> dict[str, Any]:
    """A rule of a security group."""
    return {
        "name": name,
        "properties": {
            "priority": priority,
            "direction": "Inbound",
            "access": "Allow",
            "protocol": "Tcp",
            "sourcePortRange": "*",
            "destinationPortRange": port,
            "sourceAddressPrefix": "10.0.0.0/8",
            "destinationAddressPrefix": "*",
        },
    }


def network_resources(rules: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """A virtual network with two subnets, a security group (its rules not by priority), a load balancer."""
    subnet = {"networkSecurityGroup": {"id": SECURITY}, "defaultOutboundAccess": False}
    rules = [rule("ssh", 200, "22"), rule("api", 100, "6443")] if rules is None else rules
    return [
        _network("networkSecurityGroups", "nsg", {"securityRules": rules}),
        _network(
            "virtualNetworks",
            "vnet",
            {
                "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
                "subnets": [
                    {"name": "control", "properties": {"addressPrefix": "10.1.0.0/24", **subnet}},
                    {"name": "endpoints", "properties": {"addressPrefix": "10.1.1.0/24", **subnet}},
                ],
            },
            dependsOn=[SECURITY],
        ),
        _network(
            "loadBalancers",
            "lb",
            {
                "frontendIPConfigurations": [
                    {
                        "name": "api",
                        "properties": {
                            "subnet": {"id": f"{NETWORK}/subnets/control"},
                            "privateIPAddress": "10.1.0.10",
                            "privateIPAllocationMethod": "Static",
                        },
                        "zones": ["1", "2", "3"],
                    }
                ],
                "backendAddressPools": [{"name": "api"}],
            },
            sku={"name": "Standard"},
            dependsOn=[NETWORK],
        ),
    ]


def machine_resources(address: str = "10.1.0.11", size: str = "Standard_D4s_v5") -> list[dict[str, Any]]:
    """A virtual machine with an identity, an interface in the load balancer's pool and a disk of its own."""
    return [
        {
            "type": "Microsoft.ManagedIdentity/userAssignedIdentities",
            "apiVersion": "2024-11-30",
            "name": "cp-1",
            "location": REGION,
        },
        _network(
            "networkInterfaces",
            "cp-1",
            {
                "enableAcceleratedNetworking": True,
                "ipConfigurations": [
                    {
                        "name": "first",
                        "properties": {
                            "subnet": {"id": f"{NETWORK}/subnets/control"},
                            "privateIPAddress": address,
                            "privateIPAllocationMethod": "Static",
                            "loadBalancerBackendAddressPools": [
                                {"id": f"{BALANCER}/backendAddressPools/api"}
                            ],
                        },
                    }
                ],
            },
        ),
        {
            "type": "Microsoft.Compute/disks",
            "apiVersion": "2026-03-02",
            "name": "cp-1-etcd",
            "location": REGION,
            "zones": ["1"],
            "sku": {"name": "PremiumV2_LRS"},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 64},
        },
        {
            "type": "Microsoft.Compute/virtualMachines",
            "apiVersion": "2026-04-01",
            "name": "cp-1",
            "location": REGION,
            "zones": ["1"],
            "tags": {"ironspan-host": "cp-1"},
            "identity": {"type": "UserAssigned", "userAssignedIdentities": {IDENTITY: {}}},
            "dependsOn": [INTERFACE, DISK, IDENTITY],
            "properties": {
                "hardwareProfile": {"vmSize": size},
                "osProfile": {"computerName": "cp-1", "adminUsername": "ironspan"},
                "storageProfile": {
                    "imageReference": {
                        "publisher": "Canonical",
                        "offer": "ubuntu-24_04-lts",
                        "sku": "server",
                        "version": "latest",
                    },
                    "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
                    "dataDisks": [
                        {
                            "lun": 0,
                            "createOption": "Attach",
                            "caching": "None",
                            "deleteOption": "Detach",
                            "managedDisk": {"id": DISK},
                        }
                    ],
                },
                "networkProfile": {"networkInterfaces": [{"id": INTERFACE}]},
            },
        },
    ]


def estate(
    network: list[dict[str, Any]] | None = None, machines: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A small estate: two resource groups, and a nested deployment into each."""
    groups = [
        {
            "type": "Microsoft.Resources/resourceGroups",
            "apiVersion": "2025-04-01",
            "name": name,
            "location": REGION,
        }
        for name in ("net", "vms")
    ]
    first = f"{group_id('net')}/providers/Microsoft.Resources/deployments/lab-net"
    return template(
        [
            *groups,
            nested("lab-net", "net", network_resources() if network is None else network, [group_id("net")]),
            nested(
                "lab-vms",
                "vms",
                machine_resources() if machines is None else machines,
                [group_id("vms"), first],
            ),
        ],
        subscription=True,
    )
