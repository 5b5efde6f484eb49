# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pools of nodes for bursts: scale sets whose machines come up bare and join like any host."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import GROUPS, POOL
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.machines import (
    controller_of,
    os_profile,
    security_profile,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Pool

NETWORK_API = "2022-11-01"
"""Version of the network's interface that a flexible scale set names for the interfaces that it makes."""
_MINUTES_NOTICE = 5
"""What a machine has to drain before it is deleted; 5 to 15. Spot has 30 s, whatever this says."""


def add_pools(build: Builder) -> None:
    """Add all of them."""
    for pool in build.estate.pools:
        _pool(build, pool)


def _pool(build: Builder, pool: Pool) -> None:
    estate = build.estate
    disk = {
        "createOption": "FromImage",
        "caching": "ReadWrite",
        "deleteOption": "Delete",
        "diskSizeGB": pool.os_disk_gib,
        "managedDisk": {"storageAccountType": "Premium_LRS"},
    }
    address = {
        "name": "primary",
        "properties": {"primary": True, "subnet": {"id": estate.subnets["nodes"].id}},
    }
    interface = {
        "name": "primary",
        "properties": {
            "primary": True,
            "enableAcceleratedNetworking": True,
            "enableIPForwarding": pool.routed,
            "deleteOption": "Delete",
            "ipConfigurations": [address],
        },
    }
    notice = {"enable": True, "notBeforeTimeout": f"PT{_MINUTES_NOTICE}M"}
    profile: dict[str, t.Any] = {
        "storageProfile": {
            "imageReference": estate.image.reference,
            "osDisk": disk,
            **controller_of(pool.size),
        },
        "osProfile": os_profile(estate, {"computerNamePrefix": f"{pool.name}-"}),
        "networkProfile": {"networkApiVersion": NETWORK_API, "networkInterfaceConfigurations": [interface]},
        "securityProfile": security_profile(estate, pool.size, pool.secure_boot),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        "scheduledEventsProfile": {"terminateNotificationProfile": notice},
    }
    if pool.spot:
        # At most the price of other capacity; who is evicted is gone, and the disk with it.
        profile |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    build.add(
        "Microsoft.Compute/virtualMachineScaleSets",
        estate.name_of(f"pool-{pool.name}"),
        {
            "orchestrationMode": "Flexible",
            # More than one, and a set of GPU machines ends at 200.
            "platformFaultDomainCount": 1,
            "singlePlacementGroup": False,
            "virtualMachineProfile": profile,
        },
        tags={POOL: pool.name, GROUPS: ",".join(pool.groups)},
        more={
            "sku": {"name": pool.size, "tier": "Standard", "capacity": pool.count},
            "identity": {"type": "UserAssigned", "userAssignedIdentities": {pool.identity: {}}},
            **({"zones": list(pool.zones)} if pool.zones else {}),
        },
    )
