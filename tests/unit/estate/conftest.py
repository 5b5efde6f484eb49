# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Data of an estate, and what is made of them."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template

SUBSCRIPTION = "72f988bf-86f1-41af-91ab-2d7cd011db47"
SMALL: dict[str, t.Any] = {
    "site_name": "example",
    "site_api_endpoint": "api.example.internal:6443",
    "site_api_address": "10.20.0.10",
    "azure_subscription": SUBSCRIPTION,
    "azure_tenant": "d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11",
    "azure_region": "westeurope",
    "azure_address_space": "10.20.0.0/20",
    "azure_rack_networks": ["10.1.0.0/16"],
    "azure_administrator_networks": ["10.9.0.0/24"],
    "azure_authorized_keys": [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHvTgzvdMMV0tNd2Y8n7ypp3I7ePEg4pGBt9ZbDEqk3y ops"
    ],
    "azure_image": {"version": "24.04.202610140"},
    "azure_machines": [
        {"name": "etcd", "count": 3},
        {"name": "control-plane", "groups": ["control_plane"], "count": 3},
    ],
}
"""Three members of etcd and three control planes, and nothing that has a default."""


PERSON = "33333333-2222-4333-8444-555555555555"
_HUB = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers"
RICH: dict[str, t.Any] = {
    "azure_outbound": {"kind": "nat"},
    "azure_pools": [
        {
            "name": "burst",
            "size": "Standard_NC40ads_H100_v5",
            "groups": ["nodes", "gpu"],
            "most": 8,
            "count": 1,
            "spot": True,
        }
    ],
    "azure_storage": [
        {
            "name": "weights",
            "containers": ["models"],
            "readers": ["burst"],
            "writers": [PERSON],
            "cool_after_days": 30,
            "delete_after_days": 90,
        }
    ],
    "azure_vault": {"keys": ["kms", "backup", "pki"], "administrators": [PERSON]},
    "azure_backup": {"collectors": [PERSON]},
    "azure_endpoints": [
        {"name": "cosmos", "group": "Sql", "resource": f"{_HUB}/Microsoft.DocumentDB/databaseAccounts/state"}
    ],
    "azure_gateway": {
        "kind": "vpn",
        "peers": [
            {
                "name": "west",
                "address": "8.8.8.8",
                "asn": 64512,
                "bgp_address": "10.1.0.1",
                "certificate": "https://hub.vault.azure.net/certificates/vpn",
                "subject": "router.example",
                "chain": ["A" * 64],
            }
        ],
    },
}
"""Something of everything."""


def made(**more: t.Any) -> Estate:
    """Return the small estate with more in it."""
    estate = declared({**SMALL, **more})
    assert estate is not None
    return estate


def inner(estate: Estate, part: str) -> list[dict[str, t.Any]]:
    """Return the resources of one part of the template."""
    for resource in template(estate)["resources"]:
        if resource["name"] == f"ironspan-example-{part}" and "template" in resource["properties"]:
            return list(resource["properties"]["template"]["resources"])
    return []


def of_kind(resources: list[dict[str, t.Any]], kind: str) -> dict[str, dict[str, t.Any]]:
    """Return the resources of a type, without its provider, by their names."""
    return {one["name"]: one for one in resources if one["type"].partition("/")[2] == kind}
