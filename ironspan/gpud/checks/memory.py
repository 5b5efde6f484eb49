# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Errors of memory, and what the card did about them."""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.gpud.checks.base import Check, Context, Finding, Limits


def uncorrected(context: Context, limits: Limits) -> Iterator[Finding]:
    """Errors since the driver was loaded that ECC could not correct."""
    for gpu in context.there:
        found = gpu.get("ecc_uncorrected")
        if found and found[0] > limits["errors"]:
            yield Finding("nvml ecc_uncorrected", gpu.uuid, f"{found[0]} since the driver was loaded")


def sram(context: Context, _: Limits) -> Iterator[Finding]:
    """The card says itself that its SRAM had too many errors (bThresholdExceeded)."""
    for gpu in context.there:
        if gpu.part("sram", "exceeded"):
            yield Finding("nvml sram_threshold", gpu.uuid, "SRAM has more errors than NVIDIA allows")


def corrected(context: Context, limits: Limits) -> Iterator[Finding]:
    """Errors that ECC corrected, per hour: written down, nothing is done."""
    for gpu in context.there:
        found = gpu.get("ecc_corrected")
        if found is None:
            continue
        if context.fresh:
            context.past.add(gpu.uuid, "ecc_corrected", context.now, found[0])
        grown, seconds = context.past.growth(gpu.uuid, "ecc_corrected", 900)
        if seconds >= 300 and grown * 3600 / seconds > limits["errors_per_hour"]:
            yield Finding("nvml ecc_corrected_rate", gpu.uuid, f"{grown * 3600 / seconds:.0f} an hour")


def remapped(context: Context, limits: Limits) -> Iterator[Finding]:
    """Rows of memory that were replaced, or could not be."""
    for gpu in context.there:
        found = gpu.get("remapped")
        if found is None:
            continue
        _, bad, pending, failed = found
        if failed:
            yield Finding("nvml remap_failure", gpu.uuid, "a row could not be replaced")
        if pending:
            yield Finding("nvml remap_pending", gpu.uuid, "a row is replaced with the next reset")
        if bad >= limits["rows"]:
            yield Finding("nvml remap_limit", gpu.uuid, f"{bad} rows were replaced for errors")


def retired(context: Context, limits: Limits) -> Iterator[Finding]:
    """Pages that were retired, on GPUs before Ampere."""
    for gpu in context.there:
        found = gpu.get("retired_pages")
        if found and sum(found) >= limits["pages"]:
            yield Finding("nvml retired_pages_limit", gpu.uuid, f"{sum(found)} pages")


CHECKS = (
    Check("H05", "errors that ECC did not correct", uncorrected, {"errors": 0}, ("nvml ecc_uncorrected",)),
    Check("H06", "errors of SRAM", sram, {}, ("nvml sram_threshold",)),
    # GCM and AzNHC act at totals of 10,000 to 50 million; a rate tells a card that changes from one that is
    # old.
    Check(
        "H07",
        "errors that ECC corrected",
        corrected,
        {"errors_per_hour": 1000},
        ("nvml ecc_corrected_rate",),
    ),
    # 512: DCGM and NVIDIA's guide for returns of A100 and later.
    Check(
        "H08",
        "rows of memory that were replaced",
        remapped,
        {"rows": 512},
        ("nvml remap_pending", "nvml remap_failure", "nvml remap_limit"),
    ),
    # 63: DCGM; the InfoROM of such a card has room for 64.
    Check("H09", "retired pages", retired, {"pages": 63}, ("nvml retired_pages_limit",)),
)
