# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a GPU asks for, and what slows it down."""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.gpud.checks.base import Check, Context, Finding, Limits

ACTIONS = {
    1: "nvml recovery_reset",
    2: "nvml recovery_reboot",
    3: "nvml recovery_drain_p2p",
    4: "nvml recovery_drain_and_reset",
    5: "nvml recovery_recover_imex",
    # Names of newer drivers (NVML 13.6) for stronger forms of the first two.
    6: "nvml recovery_reset",
    7: "nvml recovery_reboot",
}
"""NVML's recovery actions (field 230)."""
BRAKES = {
    0x08: "nvml hw_slowdown",
    0x20: "nvml sw_thermal",
    0x40: "nvml hw_thermal",
    0x80: "nvml power_brake",
}
"""Reasons for lower clocks that are faults. Idle (0x1) and the power cap (0x4) are how a GPU works."""
_HW_SLOWDOWN, _ITS_CAUSES = 0x08, 0x40 | 0x80


def recovery(context: Context, _: Limits) -> Iterator[Finding]:
    """The driver says itself what a GPU needs."""
    for gpu in context.there:
        action = gpu.part("fields", "recovery_action")
        if action:
            event = ACTIONS.get(action, "nvml recovery_reboot")
            yield Finding(event, gpu.uuid, f"the driver's recovery action is {action}")


def throttle(context: Context, limits: Limits) -> Iterator[Finding]:
    """Clocks are lowered for a fault, in a share of the last minutes and not for a moment."""
    seconds = limits["minutes"] * 60
    for gpu in context.there:
        reasons = gpu.get("throttle")
        if reasons is None:
            continue
        for bit, event in BRAKES.items():
            # The slowdown's own bit is set together with that of its cause.
            on = bool(reasons & bit) and not (bit == _HW_SLOWDOWN and reasons & _ITS_CAUSES)
            context.past.add(gpu.uuid, f"={event}", context.now, float(on))
            share, readings = context.past.share(gpu.uuid, f"={event}", seconds)
            if readings >= limits["readings"] and share * 100 >= limits["percent"]:
                yield Finding(event, gpu.uuid, f"in {share:.0%} of the last {limits['minutes']:.0f} min")


def margin(context: Context, limits: Limits) -> Iterator[Finding]:
    """Degrees that are left before the GPU slows itself down."""
    for gpu in context.there:
        left = gpu.get("margin")
        if left is not None and left <= limits["degrees"]:
            yield Finding("nvml temperature_margin", gpu.uuid, f"{left} degrees C left")


CHECKS = (
    Check("H10", "recovery action of the driver", recovery, {}, tuple(dict.fromkeys(ACTIONS.values()))),
    # leptonai/gpud acts on 0.6 slowdowns a minute over ten minutes.
    Check(
        "H11",
        "clocks lowered for a fault",
        throttle,
        {"minutes": 10, "percent": 60, "readings": 30},
        tuple(BRAKES.values()),
    ),
    Check("H12", "temperature margin", margin, {"degrees": 0}, ("nvml temperature_margin",)),
)
