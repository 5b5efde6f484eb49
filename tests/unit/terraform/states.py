# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files as Terraform writes them, of a team that has a network, zones, a vault, accounts and databases."""

from __future__ import annotations

import json
import typing as t

SUBSCRIPTION = "72f988bf-86f1-41af-91ab-2d7cd011db47"
TENANT = "d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11"
HUB = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers"
NETWORK = f"{HUB}/Microsoft.Network/virtualNetworks/spoke"
ZONE = "privatelink.blob.core.windows.net"
ZONE_ID = f"{HUB}/Microsoft.Network/privateDnsZones/{ZONE}"
VAULT = f"{HUB}/Microsoft.KeyVault/vaults/hub-kv"
ACCOUNT = f"{HUB}/Microsoft.Storage/storageAccounts/hubweights"
COSMOS = f"{HUB}/Microsoft.DocumentDB/databaseAccounts/State_DB"
POSTGRES = f"{HUB}/Microsoft.DBforPostgreSQL/flexibleServers/ledger"
SECRET = "kEy/that+nobody/may+see=="
Json = dict[str, t.Any]


def resource(kind: str, name: str, *, mode: str = "managed", module: str = "", **attributes: t.Any) -> Json:
    """A resource with one instance, with a secret in it as states have them."""
    found: Json = {
        "mode": mode,
        "type": kind,
        "name": name,
        "provider": 'provider["registry.terraform.io/hashicorp/azurerm"]',
        "instances": [
            {
                "schema_version": 0,
                "attributes": {"location": "westeurope", "primary_access_key": SECRET, **attributes},
                "sensitive_attributes": [],
            }
        ],
    }
    return {**found, "module": module} if module else found


def resources() -> list[Json]:
    """Something of everything that is read."""
    subnet = f"{NETWORK}/subnets"
    return [
        resource(
            "azurerm_virtual_network",
            "spoke",
            id=NETWORK,
            module="module.net",
            address_space=["10.20.0.0/19"],
        ),
        resource("azurerm_subnet", "control", id=f"{subnet}/control", address_prefixes=["10.20.0.0/24"]),
        resource("azurerm_subnet", "nodes", id=f"{subnet}/nodes", address_prefixes=["10.20.8.0/21"]),
        resource("azurerm_subnet", "pe", id=f"{subnet}/pe", address_prefixes=["10.20.1.0/24"]),
        resource("azurerm_subnet_network_security_group_association", "nodes", id=f"{subnet}/nodes"),
        resource("azurerm_private_dns_zone", "blob", id=ZONE_ID),
        resource(
            "azurerm_private_dns_zone", "other", id=f"{HUB}/Microsoft.Network/privateDnsZones/acme.internal"
        ),
        resource("azurerm_key_vault", "hub", id=VAULT, tenant_id=TENANT),
        resource("azurerm_storage_account", "weights", id=ACCOUNT, is_hns_enabled=False),
        resource("azurerm_storage_account_network_rules", "weights", id=ACCOUNT),
        resource("azurerm_cosmosdb_account", "state", id=COSMOS, mode="data"),
        resource("azurerm_postgresql_flexible_server", "ledger", id=POSTGRES, administrator_password=SECRET),
        resource("random_password", "admin", id="none", result=SECRET),
    ]


def state(entries: list[Json] | None = None, **more: t.Any) -> bytes:
    """A state of version 4."""
    top = {
        "version": 4,
        "terraform_version": "1.9.5",
        "serial": 7,
        "lineage": "5f2b",
        "outputs": {"password": {"value": SECRET, "type": "string", "sensitive": True}},
        "resources": resources() if entries is None else entries,
        **more,
    }
    return json.dumps(top).encode()


def shown(entries: list[Json] | None = None) -> bytes:
    """The same as `terraform show -json` writes it, half of it in a module."""
    found = [
        {
            "address": f"{one['type']}.{one['name']}",
            "mode": one["mode"],
            "type": one["type"],
            "name": one["name"],
            "values": one["instances"][0]["attributes"],
        }
        for one in (resources() if entries is None else entries)
    ]
    half = len(found) // 2
    module = {
        "resources": found[:half],
        "child_modules": [{"address": "module.a", "resources": found[half:]}],
    }
    return json.dumps({"format_version": "1.0", "values": {"root_module": module}}).encode()


def outputs(**values: t.Any) -> bytes:
    """What `terraform output -json` writes."""
    return json.dumps(
        {name: {"sensitive": False, "type": "string", "value": value} for name, value in values.items()}
    ).encode()
