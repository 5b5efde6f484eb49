# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the provider azurerm (4.x) calls the types of resources that an estate has or refers to."""

from __future__ import annotations

from collections.abc import Mapping

TYPES: Mapping[str, tuple[str, ...]] = {
    "microsoft.authorization/roleassignments": ("azurerm_role_assignment",),
    "microsoft.authorization/roledefinitions": ("azurerm_role_definition",),
    "microsoft.compute/availabilitysets": ("azurerm_availability_set",),
    "microsoft.compute/disks": ("azurerm_managed_disk",),
    "microsoft.compute/galleries/images/versions": ("azurerm_shared_image_version",),
    "microsoft.compute/images": ("azurerm_image",),
    "microsoft.compute/virtualmachines": ("azurerm_linux_virtual_machine", "azurerm_virtual_machine"),
    "microsoft.compute/virtualmachinescalesets": (
        "azurerm_orchestrated_virtual_machine_scale_set",
        "azurerm_linux_virtual_machine_scale_set",
    ),
    "microsoft.containerregistry/registries": ("azurerm_container_registry",),
    "microsoft.dbforpostgresql/flexibleservers": ("azurerm_postgresql_flexible_server",),
    "microsoft.documentdb/databaseaccounts": ("azurerm_cosmosdb_account",),
    "microsoft.keyvault/vaults": ("azurerm_key_vault",),
    "microsoft.managedidentity/userassignedidentities": ("azurerm_user_assigned_identity",),
    "microsoft.network/connections": ("azurerm_virtual_network_gateway_connection",),
    "microsoft.network/expressroutecircuits": ("azurerm_express_route_circuit",),
    "microsoft.network/loadbalancers": ("azurerm_lb",),
    "microsoft.network/localnetworkgateways": ("azurerm_local_network_gateway",),
    "microsoft.network/natgateways": ("azurerm_nat_gateway",),
    "microsoft.network/networkinterfaces": ("azurerm_network_interface",),
    "microsoft.network/networksecuritygroups": ("azurerm_network_security_group",),
    "microsoft.network/privatednszones": ("azurerm_private_dns_zone",),
    "microsoft.network/privatednszones/a": ("azurerm_private_dns_a_record",),
    "microsoft.network/privatednszones/virtualnetworklinks": (
        "azurerm_private_dns_zone_virtual_network_link",
    ),
    "microsoft.network/privateendpoints": ("azurerm_private_endpoint",),
    "microsoft.network/publicipaddresses": ("azurerm_public_ip",),
    "microsoft.network/routetables": ("azurerm_route_table",),
    "microsoft.network/virtualnetworkgateways": ("azurerm_virtual_network_gateway",),
    "microsoft.network/virtualnetworks": ("azurerm_virtual_network",),
    "microsoft.network/virtualnetworks/subnets": ("azurerm_subnet",),
    "microsoft.resources/resourcegroups": ("azurerm_resource_group",),
    "microsoft.storage/storageaccounts": ("azurerm_storage_account",),
    "microsoft.storage/storageaccounts/blobservices/containers": ("azurerm_storage_container",),
    "microsoft.storage/storageaccounts/managementpolicies": ("azurerm_storage_management_policy",),
}
"""Azure's type in lower case -> the provider's, that of an estate first."""
ANY_TYPE = "azapi_resource"
"""The resource of another provider that stands for any type."""


def is_of(kind: str, terraform: str) -> bool:
    """Tell whether a resource of Terraform is the one whose id it has.

    Associations, network rules and the like borrow the id of what they belong to.

    Args:
        kind: Azure's type, in lower case.
        terraform: the provider's.
    """
    return terraform in (*TYPES.get(kind, ()), ANY_TYPE)
