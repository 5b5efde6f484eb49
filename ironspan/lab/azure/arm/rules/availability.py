# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether machines of a size are to be had: region, zone, restriction, quota."""

from __future__ import annotations

from typing import Any

from ironspan.lab.azure.arm import sizes
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.state import State


def region_of(document: dict[str, Any]) -> str:
    """Return the region of a resource as Azure keeps it."""
    return sizes.location(str(document.get("location", "")))


def check_size(state: State, name: str, region: str, zones: list[str]) -> sizes.Size:
    """Return a size that is to be had in a region and its zones. Raises ArmError."""
    size = sizes.SIZES.get(name.lower())
    if size is None:
        raise ArmError(
            400,
            "InvalidParameter",
            f"The value {name} provided for the VM size is not valid. The valid sizes in the current "
            f"region are: {', '.join(one.name for one in list(sizes.SIZES.values())[:8])}, ...",
            target="vmSize",
        )
    for zone in zones or [""]:
        if zone and zone not in sizes.REGIONS.get(region, ()):
            raise ArmError(
                400,
                "AvailabilityZoneNotSupported",
                f"The zone(s) '{zone}' for resource '{name}' is not supported. The supported zones for "
                f"location '{region}' are '{','.join(sizes.REGIONS.get(region, ()))}'.",
            )
        if not sizes.available(state, size, zone):
            where = f"location '{region}' zone '{zone}'" if zone else f"location '{region}'"
            raise ArmError(
                409,
                "SkuNotAvailable",
                "The requested VM size for resource 'Following SKUs have failed for Capacity "
                f"Restrictions: {name}' is currently not available in {where}. Please try another size or "
                "deploy to a different location or different zone. See "
                "https://aka.ms/azureskunotavailable for details.",
                target="vmSize",
            )
    return size


def check_quota(state: State, size: sizes.Size, count: int, spot: bool, region: str) -> None:
    """Refuse machines that the subscription has no quota for. Raises ArmError."""
    used = sizes.used(state, region)
    for name in ("lowPriorityCores",) if spot else (size.family, "cores"):
        most, now, more = sizes.limit(state, name), used.get(name, 0), size.cores * count
        if now + more > most:
            raise ArmError(
                409,
                "QuotaExceeded",
                f"Operation could not be completed as it results in exceeding approved {name} Cores quota. "
                f"Additional details - Deployment Model: Resource Manager, Location: {region}, Current "
                f"Limit: {most}, Current Usage: {now}, Additional Required: {more}, (Minimum) New Limit "
                f"Required: {now + more}.",
            )
