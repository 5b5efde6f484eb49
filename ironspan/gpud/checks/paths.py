# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The ways between GPUs and the network: ports of RDMA adapters, peer memory, PCIe as it was booted."""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.gpud.checks.base import Check, Context, Finding, Limits


def ports(context: Context, limits: Limits) -> Iterator[Finding]:
    """As many ports are up as the inventory says, at their rate, and none goes up and down."""
    down = []
    for name, port in (context.host.get("ports") or {}).items():
        up = port["up"] and port["gbps"] >= limits["gbps"]
        context.past.add(name, "downed", context.now, port["downed"])
        if not up:
            down.append(f"{name} ({port['state']}, {port['gbps']:g} Gbit/s)")
        growth, _ = context.past.growth(name, "downed", limits["minutes_flapping"] * 60)
        if growth >= limits["downs"]:
            yield Finding("nvml rdma_port_flapping", "", f"{name} went down {growth:g} times")
    wanted = context.expected.ports
    if wanted is None:
        return
    found = sum(1 for port in context.host.get("ports") or {}) - len(down)
    context.past.add("", "=ports", context.now, float(found >= wanted))
    share, _ = context.past.share("", "=ports", limits["minutes"] * 60)
    _, seconds = context.past.growth("", "=ports", limits["minutes"] * 60)
    # A link that is trained again, or a switch that starts, is no fault yet.
    if share == 0 and seconds >= limits["minutes"] * 60 * 0.9:
        named = f": {', '.join(down[:4])}" if down else ""
        yield Finding("nvml rdma_port_down", "", f"{found} of {wanted} ports are up{named}")


def peermem(context: Context, _: Limits) -> Iterator[Finding]:
    """The module through which adapters reach GPUs is loaded, where the inventory wants it."""
    if context.expected.peermem and context.host.get("module") and not context.host.get("peermem"):
        yield Finding("nvml peermem_missing", "", "nvidia_peermem is not loaded")


def booted(context: Context, _: Limits) -> Iterator[Finding]:
    """IOMMU and PCIe's access control are as the inventory wants the host to boot."""
    groups, expected = context.host.get("iommu"), context.expected
    if expected.iommu == "disabled" and groups:
        yield Finding("nvml pcie_setting_differs", "", "the IOMMU is on, and is to be disabled")
    if expected.iommu == "passthrough" and groups is not None:
        translated = sorted({kind for kind in groups if kind != "identity"})
        if not groups:
            yield Finding("nvml pcie_setting_differs", "", "the IOMMU is off, and is to pass through")
        elif translated:
            detail = f"the IOMMU translates for GPUs ({translated[0]}), and is to pass through"
            yield Finding("nvml pcie_setting_differs", "", detail)
    if expected.direct and context.host.get("direct") is False:
        detail = "the kernel was not told at boot to keep access control from redirecting"
        yield Finding("nvml pcie_setting_differs", "", detail)


CHECKS = (
    # Four minutes: leptonai/gpud. Three times in a quarter of an hour: ours; theirs counts half a day.
    Check(
        "H19",
        "ports of RDMA adapters",
        ports,
        {"minutes": 4, "gbps": 0, "downs": 3, "minutes_flapping": 15},
        ("nvml rdma_port_down", "nvml rdma_port_flapping"),
    ),
    Check("H20", "peer memory", peermem, {}, ("nvml peermem_missing",)),
    Check("H22", "IOMMU and access control of PCIe", booted, {}, ("nvml pcie_setting_differs",)),
)
