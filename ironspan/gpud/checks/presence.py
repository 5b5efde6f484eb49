# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Are the GPUs there, and do they answer?"""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.gpud.checks.base import Check, Context, Finding, Limits

_RESET_REQUIRED = 16
_CORRUPTED = 14


def count(context: Context, _: Limits) -> Iterator[Finding]:
    """As many GPUs as the inventory says, of its model, and all that were there since the boot."""
    expected = context.expected
    there = {gpu.uuid for gpu in context.gpus}
    gone = sorted(context.seen - there)
    for uuid in gone:
        yield Finding("nvml gpu_missing", uuid, "it was there since this boot")
    if expected.count is not None and len(context.gpus) + len(gone) < expected.count:
        yield Finding(
            "nvml gpu_missing", "", f"{len(context.gpus)} GPUs, the inventory says {expected.count}"
        )
    for gpu in context.there:
        name = str(gpu.get("name") or "")
        if expected.model and name and expected.model.lower() not in name.lower():
            yield Finding("nvml versions_differ", gpu.uuid, f"{name}, the inventory says {expected.model}")


def answers(context: Context, _: Limits) -> Iterator[Finding]:
    """Each GPU answers, and none asks for a reset."""
    for gpu in context.gpus:
        if gpu.lost:
            yield Finding("nvml gpu_lost", gpu.uuid, f"NVML answers {gpu.lost} for GPU {gpu.index}")
            continue
        errors = gpu.errors()
        asks = [name for name, code in errors.items() if code == _RESET_REQUIRED]
        if asks:
            yield Finding("nvml recovery_reset", gpu.uuid, f"NVML asks for a reset ({asks[0]})")
        if _CORRUPTED in errors.values():
            yield Finding("nvml inforom_corrupt", gpu.uuid, "checksums of the InfoROM are wrong")


CHECKS = (
    Check("H01", "all GPUs are there", count, {}, ("nvml gpu_missing", "nvml versions_differ")),
    Check(
        "H02",
        "each GPU answers in time",
        answers,
        {},
        ("nvml gpu_lost", "nvml hung", "nvml recovery_reset", "nvml inforom_corrupt"),
    ),
)
