# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""PCIe, NVLink and the fabric."""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.gpud.checks.base import Check, Context, Finding, Limits

REPLAYS_PER_MINUTE_AND_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""By PCIe generation: a bit error rate of 1e-12 at the lane's rate (DCGM's PCIe rule)."""
_COMPLETED = 3
_UNHEALTHY = 2
_NOT_SUPPORTED = 0


def pcie(context: Context, limits: Limits) -> Iterator[Finding]:
    """Width always; generation only under load, as idle links slow down to save power."""
    for gpu in context.there:
        width, widest = gpu.get("pcie_width"), gpu.get("pcie_max_width")
        if width and widest and width < widest:
            yield Finding("nvml pcie_width", gpu.uuid, f"x{width} of x{widest}")
        generation, newest = gpu.get("pcie_generation"), gpu.get("pcie_max_generation")
        busy = (gpu.get("utilization") or [0])[0] >= limits["busy_percent"]
        if busy and generation and newest and generation < newest:
            yield Finding("nvml pcie_generation", gpu.uuid, f"generation {generation} of {newest} under load")


def replays(context: Context, limits: Limits) -> Iterator[Finding]:
    """Packets that PCIe sent again, per minute and lane."""
    for gpu in context.there:
        found = gpu.get("pcie_replays")
        if found is None:
            continue
        if context.fresh:
            context.past.add(gpu.uuid, "pcie_replays", context.now, found)
        grown, seconds = context.past.growth(gpu.uuid, "pcie_replays", 600)
        lanes = gpu.get("pcie_width") or 16
        allowed = limits["factor"] * lanes * REPLAYS_PER_MINUTE_AND_LANE.get(gpu.get("pcie_generation"), 1.92)
        if seconds >= 60 and grown * 60 / seconds > allowed:
            detail = f"{grown * 60 / seconds:.0f} a minute, {allowed:.0f} are allowed"
            yield Finding("nvml pcie_replay_rate", gpu.uuid, detail)


def nvlink(context: Context, limits: Limits) -> Iterator[Finding]:
    """Links that are down, and errors of links.

    A GPU without any link that is up may be one that has none to anybody, as in a virtual machine: it is a
    fault only where the inventory says otherwise, or where links were up before.
    """
    for gpu in context.there:
        links = gpu.get("links")
        if links:
            up = sum(links)
            context.past.add(gpu.uuid, "=links", context.now, up)
            wanted = context.expected.links
            if wanted is None:
                wanted = len(links) if up else int(context.past.most(gpu.uuid, "=links"))
            if up < wanted:
                down = ", ".join(str(number) for number, state in enumerate(links) if not state)
                yield Finding(
                    "nvml nvlink_inactive", gpu.uuid, f"{up} of {wanted} links are up; down: {down}"
                )
        yield from _errors(context, gpu.uuid, gpu.get("link_fields") or {}, limits)


def _errors(context: Context, uuid: str, fields: dict[str, int | None], limits: Limits) -> Iterator[Finding]:
    for name, limit in (("nvlink_replay", "per_hour"), ("nvlink_recovery", "per_hour")):
        value = fields.get(name)
        if value is None:
            continue
        if context.fresh:
            context.past.add(uuid, name, context.now, value)
        grown, _ = context.past.growth(uuid, name, 900)
        if grown * 4 >= limits[limit]:
            yield Finding("nvml nvlink_errors", uuid, f"{grown:.0f} of {name} in 15 minutes")
    for name in ("nvlink_crc_flit", "nvlink_crc_data"):
        value = fields.get(name)
        if value is None:
            continue
        if context.fresh:
            context.past.add(uuid, name, context.now, value)
        grown, seconds = context.past.growth(uuid, name, 120)
        if seconds >= 30 and grown / seconds >= limits["crc_per_second"]:
            yield Finding("nvml nvlink_errors", uuid, f"{grown / seconds:.0f} of {name} a second")


def fabric(context: Context, _: Limits) -> Iterator[Finding]:
    """Where there are NVSwitches the fabric is complete; where there are none, no fabric manager runs."""
    switched = bool(context.host.get("switches"))
    for gpu in context.there:
        found = gpu.get("fabric")
        if not found or found["state"] == _NOT_SUPPORTED:
            continue
        # Not begun is what a card says in a virtual machine that has none of its links.
        if found["state"] != _COMPLETED and (switched or found["state"] == 2):
            yield Finding("nvml fabric_incomplete", gpu.uuid, f"state {found['state']}, 3 is complete")
        elif found["state"] == _COMPLETED and (found["status"] or found["healthSummary"] == _UNHEALTHY):
            detail = f"status {found['status']}, health {found['healthMask']:#x}"
            yield Finding("nvml fabric_incomplete", gpu.uuid, detail)
    runs = "nvidia-fabricmanager" in context.host.get("services", ())
    has = any((gpu.get("fabric") or {}).get("state") for gpu in context.there)
    if runs and not has and not switched and context.there:
        yield Finding(
            "nvml fabric_manager_without_fabric", "", "nvidia-fabricmanager runs, there is no NVSwitch"
        )


CHECKS = (
    Check(
        "H13",
        "width and generation of PCIe",
        pcie,
        {"busy_percent": 50},
        ("nvml pcie_width", "nvml pcie_generation"),
    ),
    Check("H14", "packets that PCIe sent again", replays, {"factor": 1}, ("nvml pcie_replay_rate",)),
    # DCGM: one replay or recovery is a fault, 100 CRC errors a second are. Links of NVLink 4 have some
    # replays in normal work.
    Check(
        "H15",
        "NVLink",
        nvlink,
        {"per_hour": 100, "crc_per_second": 100},
        ("nvml nvlink_inactive", "nvml nvlink_errors"),
    ),
    Check("H16", "fabric", fabric, {}, ("nvml fabric_incomplete", "nvml fabric_manager_without_fabric")),
)
