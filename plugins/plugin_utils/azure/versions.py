# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Versions of Azure's interfaces: what is deployed and what is asked, in one table."""

from __future__ import annotations

from collections.abc import Mapping

API_VERSIONS: Mapping[str, str] = {
    # What the locked azure-mgmt libraries send; tests/unit/estate compares.
    "Microsoft.Resources": "2022-12-01",
    "Microsoft.Resources/resourceGroups": "2025-04-01",
    "Microsoft.Resources/deployments": "2025-04-01",
    "Microsoft.Network": "2026-03-01",
    "Microsoft.Network/privateDnsZones": "2024-06-01",
    "Microsoft.Compute": "2026-04-01",
    "Microsoft.Compute/disks": "2026-03-02",
    "Microsoft.ManagedIdentity": "2024-11-30",
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.KeyVault": "2026-05-15",
    "Microsoft.Storage": "2026-09-01",
}
"""Type of resources, or the provider of all others of it -> version."""


def api_version(kind: str) -> str:
    """Return the version of the interface for a type of resources.

    Args:
        kind: such as ``Microsoft.Network/privateDnsZones/A``; a provider alone for what has no type.
    """
    provider, *types = kind.split("/")
    return API_VERSIONS.get("/".join([provider, *types[:1]])) or API_VERSIONS[provider]
