# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Versions and settings."""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.gpud.checks.base import Check, Context, Finding, Limits


def versions(context: Context, _: Limits) -> Iterator[Finding]:
    """Library, kernel module, firmware and inventory agree, and GPUs of one model have one VBIOS."""
    driver = str(context.system.get("driver") or "")
    module = str(context.host.get("module") or "")
    wanted = context.expected.driver
    if module and driver and module != driver:
        yield Finding("nvml versions_differ", "", f"kernel module {module}, library {driver}")
    if wanted and driver and wanted != driver:
        yield Finding("nvml versions_differ", "", f"driver {driver}, the inventory says {wanted}")
    for gpu in context.there:
        gsp = gpu.get("gsp")
        if gsp and driver and gsp != driver:
            yield Finding("nvml versions_differ", gpu.uuid, f"firmware {gsp}, driver {driver}")
    models: dict[str, dict[str, str]] = {}
    for gpu in context.there:
        if gpu.get("vbios"):
            models.setdefault(str(gpu.get("name")), {})[gpu.uuid] = gpu.get("vbios")
    for found in models.values():
        usual = max(sorted(set(found.values())), key=list(found.values()).count)
        for uuid, vbios in found.items():
            if vbios != usual:
                yield Finding("nvml versions_differ", uuid, f"VBIOS {vbios}, the others have {usual}")


def settings(context: Context, _: Limits) -> Iterator[Finding]:
    """Persistence, compute mode, MIG and ECC are as declared."""
    expected = context.expected
    for gpu in context.there:
        if gpu.get("persistence") == 0:
            yield Finding("nvml persistence_off", gpu.uuid, "nvidia-persistenced does not run")
        mode = gpu.get("compute_mode")
        if mode is not None and mode != expected.compute_mode:
            yield Finding("nvml compute_mode_differs", gpu.uuid, f"{mode}, wanted {expected.compute_mode}")
        mig = gpu.get("mig")
        if mig and bool(mig[0]) != expected.mig:
            yield Finding("nvml mig_differs", gpu.uuid, f"MIG is {'on' if mig[0] else 'off'}")
        ecc = gpu.get("ecc_mode")
        if ecc and not ecc[0]:
            yield Finding("nvml ecc_off", gpu.uuid, "ECC is off")


def strays(context: Context, limits: Limits) -> Iterator[Finding]:
    """Processes that use a GPU that no pod has."""
    if context.used is None:
        return
    for gpu in context.there:
        large = [pid for pid, mib in gpu.get("processes") or [] if mib > limits["mib"]]
        if large and gpu.uuid not in context.used:
            yield Finding("nvml stray_processes", gpu.uuid, f"processes {', '.join(map(str, large[:5]))}")


def cdi(context: Context, _: Limits) -> Iterator[Finding]:
    """The description of devices for containers is that of this driver."""
    described = context.host.get("cdi")
    if not described:
        return
    driver = str(context.system.get("driver") or "")
    others = [version for version in described["drivers"] if version != driver]
    if driver and others:
        yield Finding("nvml cdi_stale", "", f"CDI describes driver {others[0]}, {driver} is loaded")
    if context.host.get("missing"):
        yield Finding("nvml cdi_stale", "", f"CDI names {context.host['missing'][0]}, which is not there")


CHECKS = (
    Check("H03", "versions agree", versions, {}, ("nvml versions_differ",)),
    Check(
        "H17",
        "persistence, compute mode, MIG, ECC",
        settings,
        {},
        ("nvml persistence_off", "nvml compute_mode_differs", "nvml mig_differs", "nvml ecc_off"),
    ),
    # 15 MiB: Meta's GCM.
    Check("H18", "processes on idle GPUs", strays, {"mib": 15}, ("nvml stray_processes",)),
    Check("H21", "devices for containers (CDI)", cdi, {}, ("nvml cdi_stale",)),
)
