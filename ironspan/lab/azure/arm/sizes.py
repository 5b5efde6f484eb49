# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sizes of virtual machines, regions, and what a subscription may use of them.

Families,
cores and memory are those of Azure's own pages; the lab sells them in three regions with three zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironspan.lab.azure.arm.state import Resource, State

REGIONS = {
    "westeurope": ("1", "2", "3"),
    "northeurope": ("1", "2", "3"),
    "germanywestcentral": ("1", "2", "3"),
    "swedencentral": ("1", "2", "3"),
    "eastus2": ("1", "2", "3"),
    "lab": ("1", "2", "3"),
    "westus": (),
}
#: Limits of a new subscription; families that are not named have 100 cores, those of GPUs none.
_LIMITS = {"cores": 350, "lowPriorityCores": 100, "virtualMachines": 25000, "virtualMachineScaleSets": 2500,
           "PremiumV2DiskCount": 50000}  # fmt: skip
_NETWORK_LIMITS = {"VirtualNetworks": 1000, "NetworkInterfaces": 65536, "NetworkSecurityGroups": 5000,
                   "LoadBalancers": 1000, "PublicIPAddresses": 1000, "StandardSkuPublicIpAddresses": 1000,
                   "RouteTables": 200, "NatGateways": 400, "PrivateEndpoints": 65536,
                   "VirtualNetworkGateways": 1000}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """A size of virtual machines."""

    name: str
    family: str
    cores: int
    memory_gib: float
    gpus: int = 0
    nvme_gib: int = 0
    infiniband: bool = False
    premium: bool = True
    accelerated: bool = True
    architecture: str = "x64"


def _series(form: str, family: str, cores: tuple[int, ...], per_core: float, nvme: int = 0) -> list[Size]:
    return [
        Size(form.format(one), family, one, one * per_core, nvme_gib=nvme * one // cores[0]) for one in cores
    ]


_SIZES = [
    *_series("Standard_D{}s_v5", "standardDSv5Family", (2, 4, 8, 16, 32, 48, 64, 96), 4),
    *_series("Standard_D{}as_v5", "standardDASv5Family", (2, 4, 8, 16, 32, 48, 64, 96), 4),
    *_series("Standard_D{}ds_v5", "standardDDSv5Family", (2, 4, 8, 16, 32, 48, 64, 96), 4),
    *_series("Standard_D{}s_v6", "StandardDsv6Family", (2, 4, 8, 16, 32, 48, 64, 96), 4),
    *_series("Standard_D{}as_v6", "StandardDasv6Family", (2, 4, 8, 16, 32, 48, 64, 96), 4),
    *_series("Standard_D{}ds_v6", "StandardDdsv6Family", (2, 4, 8, 16, 32, 48, 64, 96), 4, 110),
    *_series("Standard_D{}ads_v6", "StandardDadsv6Family", (2, 4, 8, 16, 32, 48, 64, 96), 4, 110),
    *_series("Standard_E{}s_v5", "standardESv5Family", (2, 4, 8, 16, 32, 48, 64, 96), 8),
    *_series("Standard_E{}s_v6", "StandardEsv6Family", (2, 4, 8, 16, 32, 48, 64, 96), 8),
    *_series("Standard_E{}ds_v6", "StandardEdsv6Family", (2, 4, 8, 16, 32, 48, 64, 96), 8, 110),
    *_series("Standard_E{}bds_v5", "standardEBDSv5Family", (2, 4, 8, 16, 32, 48, 64), 8),
    *_series("Standard_F{}as_v6", "StandardFasv6Family", (2, 4, 8, 16, 32, 48, 64), 4),
    *_series("Standard_L{}s_v3", "standardLSv3Family", (8, 16, 32, 48, 64, 80), 8, 1920),
    *_series("Standard_L{}as_v3", "standardLASv3Family", (8, 16, 32, 48, 64, 80), 8, 1920),
    *_series("Standard_B{}s_v2", "standardBsv2Family", (2, 4, 8, 16, 32), 4),
    *_series("Standard_B{}as_v2", "standardBasv2Family", (2, 4, 8, 16, 32), 4),
    Size("Standard_NC40ads_H100_v5", "StandardNCadsH100v5Family", 40, 320, gpus=1, nvme_gib=3576),
    Size("Standard_NC80adis_H100_v5", "StandardNCadsH100v5Family", 80, 640, gpus=2, nvme_gib=7152),
    Size("Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220, gpus=1, nvme_gib=960),
    Size("Standard_NC48ads_A100_v4", "StandardNCADSA100v4Family", 48, 440, gpus=2, nvme_gib=1920),
    Size("Standard_NC96ads_A100_v4", "StandardNCADSA100v4Family", 96, 880, gpus=4, nvme_gib=3840),
    Size("Standard_NV36ads_A10_v5", "StandardNVADSA10v5Family", 36, 440, gpus=1),
    Size("Standard_ND96isr_H100_v5", "standardNDSH100v5Family", 96, 1900, 8, 28672, infiniband=True),
    Size("Standard_ND96isr_H200_v5", "standardNDISRH200V5Family", 96, 1850, 8, 28672, infiniband=True),
    Size(
        "Standard_ND128isr_NDR_GB200_v6", "standardNDISRGB200V6NDRFamily", 128, 864, 4, 16384,
        infiniband=True, architecture="Arm64",
    ),
]  # fmt: skip
SIZES = {one.name.lower(): one for one in _SIZES}


def location(name: str) -> str:
    """Return a region's name as Azure keeps it: "West Europe" is westeurope."""
    return name.replace(" ", "").lower()


def of(resource: Resource) -> tuple[Size | None, bool]:
    """Return the size of a virtual machine, and whether it is a spot machine."""
    properties = resource.properties
    name = str(properties.get("hardwareProfile", {}).get("vmSize", "")).lower()
    return SIZES.get(name), str(properties.get("priority", "")).lower() in ("spot", "low")


def used(state: State, region: str) -> dict[str, int]:
    """Return the usage of cores, by family, and of machines in a region."""
    found = {"cores": 0, "lowPriorityCores": 0, "virtualMachines": 0}
    for one in state.of_type("Microsoft.Compute/virtualMachines"):
        size, spot = of(one)
        if size is None or one.document.get("location") != region or one.power == "deallocated":
            continue
        found["virtualMachines"] += 1
        for name in ("lowPriorityCores",) if spot else ("cores", size.family):
            found[name] = found.get(name, 0) + size.cores
    return found


def limit(state: State, name: str) -> int:
    """Return how much of a usage the subscription may have."""
    asked = {one.lower(): value for one, value in state.settings.limits.items()}
    if name.lower() in asked:
        return asked[name.lower()]
    if name in _LIMITS:
        return _LIMITS[name]
    if name in _NETWORK_LIMITS:
        return _NETWORK_LIMITS[name]
    return 0 if any(one.gpus for one in _SIZES if one.family == name) else 100


def compute_usages(state: State, region: str) -> list[dict[str, Any]]:
    """Return what GET .../Microsoft.Compute/locations/REGION/usages lists."""
    values = used(state, region)
    names = [*_LIMITS, *dict.fromkeys(one.family for one in _SIZES)]
    return [_usage(name, values.get(name, 0), limit(state, name)) for name in names]


def network_usages(state: State, region: str) -> list[dict[str, Any]]:
    """Return what GET .../Microsoft.Network/locations/REGION/usages lists."""
    found = []
    for name in _NETWORK_LIMITS:
        type = "publicIPAddresses" if name == "StandardSkuPublicIpAddresses" else name
        there = [
            one
            for one in state.of_type(f"Microsoft.Network/{type}")
            if one.document.get("location") == region
        ]
        found.append(_usage(name, len(there), limit(state, name)))
    return found


def _usage(name: str, value: int, most: int) -> dict[str, Any]:
    shown = {"value": name, "localizedValue": name}
    return {"unit": "Count", "currentValue": value, "limit": most, "name": shown}


def skus(state: State, region: str) -> list[dict[str, Any]]:
    """Return what the list of compute SKUs has for a region."""
    zones = REGIONS.get(region, ())
    found = [_machine_sku(state, one, region, zones) for one in _SIZES]
    for name in ("Standard_LRS", "StandardSSD_LRS", "Premium_LRS", "PremiumV2_LRS", "UltraSSD_LRS"):
        found.append(
            {
                "resourceType": "disks", "name": name, "tier": name.partition("_")[0], "locations": [region],
                "locationInfo": [{"location": region, "zones": list(zones), "zoneDetails": []}],
                "capabilities": [], "restrictions": [],
            }
        )  # fmt: skip
    return found


def _machine_sku(state: State, size: Size, region: str, zones: tuple[str, ...]) -> dict[str, Any]:
    capabilities = {
        "vCPUs": size.cores, "MemoryGB": f"{size.memory_gib:g}", "GPUs": size.gpus or None,
        "PremiumIO": size.premium, "AcceleratedNetworkingEnabled": size.accelerated,
        "RdmaEnabled": size.infiniband,
        "HyperVGenerations": "V2" if "_v6" in size.name else "V1,V2",
        "CpuArchitectureType": size.architecture,
        "EncryptionAtHostSupported": True, "EphemeralOSDiskSupported": size.nvme_gib > 0,
        "LowPriorityCapable": True,
        "NvmeDiskSizeInMiB": size.nvme_gib * 1024 or None,
        "DiskControllerTypes": "SCSI, NVMe" if "_v6" not in size.name else "NVMe", "UltraSSDAvailable": True,
        "TrustedLaunchDisabled": None,
    }  # fmt: skip
    restricted = [one.lower() for one in state.settings.restricted]
    restrictions: list[dict[str, Any]] = []
    if size.name.lower() in restricted:
        restrictions.append(_restriction("Location", [region], region, ()))
    closed = [zone for zone in zones if f"{size.name}/{zone}".lower() in restricted]
    if closed:
        restrictions.append(_restriction("Zone", [region], region, closed))
    return {
        "resourceType": "virtualMachines",
        "name": size.name,
        "tier": "Standard",
        "size": size.name.partition("_")[2],
        "family": size.family,
        "locations": [region],
        "locationInfo": [{"location": region, "zones": list(zones), "zoneDetails": []}],
        "capabilities": [
            {"name": name, "value": str(value)} for name, value in capabilities.items() if value is not None
        ],
        "restrictions": restrictions,
    }


def _restriction(kind: str, values: list[str], region: str, zones: Any) -> dict[str, Any]:
    about = {"locations": [region], **({"zones": list(zones)} if zones else {})}
    return {
        "type": kind, "values": values, "restrictionInfo": about, "reasonCode": "NotAvailableForSubscription"
    }  # fmt: skip


def available(state: State, size: Size, zone: str) -> bool:
    """Whether a size is to be had, in a zone if one is named."""
    restricted = [one.lower() for one in state.settings.restricted]
    return size.name.lower() not in restricted and f"{size.name}/{zone}".lower() not in restricted
