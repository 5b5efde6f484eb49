# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs, memory, disks and firmware of one server: declared against measured."""

from __future__ import annotations

import collections
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import Disks, ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.findings import Kind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import NVIDIA, known_gpus
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Disk, Gpu, Inspection

INSTALLED_WITHIN = 0.01
"""Share by which installed memory may differ from a round number."""
LEFT_AT_LEAST = 0.93
"""Share of the installed memory that a kernel has left, where only that is known."""
DISK_WITHIN = 0.02
"""Share by which a disk's size may differ from the one it is sold by."""


class Difference(t.NamedTuple):
    """A finding without its server."""

    part: str
    kind: Kind
    message: str
    remedy: str


def compared_gpus(
    server: ExpectedServer, inspections: Sequence[Inspection], usual: frozenset[str] = frozenset()
) -> Iterator[Difference]:
    """Yield how the GPUs differ.

    Args:
        server: what was declared.
        inspections: what was measured.
        usual: PCI addresses at which the other servers of this model have GPUs.
    """
    if server.gpu_count is None:
        return
    measured = next((one.gpus for one in inspections if one.gpus is not None), None)
    if measured is None:
        if server.gpu_count:
            declared = f"{server.gpu_count} x {server.gpu_model} declared"
            remedy = "inspect with the collector pci-devices"
            yield Difference("GPU", "not measured", f"{declared}, no list of PCI devices measured", remedy)
        return
    wanted = [gpu for gpu in measured if _is(gpu, server.gpu_model)]
    others = collections.Counter(named(gpu.device) for gpu in measured if gpu not in wanted)
    for name, count in sorted(others.items()):
        declared = f"{server.gpu_count} x {server.gpu_model}" if server.gpu_count else "none"
        remedy = "exchange them, or correct gpu_model" if server.gpu_count else "declare them"
        yield Difference("GPU", "differs", f"{declared} declared, {count} x {name} measured", remedy)
    if len(wanted) < server.gpu_count:
        addresses = {gpu.address for gpu in measured if gpu.address}
        empty = sorted(usual - addresses) if addresses else []
        seen = f"; none at PCI {', '.join(empty)}, where the others of this model have one" if empty else ""
        message = f"{len(wanted)} of {server.gpu_count} {server.gpu_model} measured{seen}"
        yield Difference("GPU", "missing", message, "reseat or exchange it, and inspect again")
    elif len(wanted) > server.gpu_count:
        message = f"{server.gpu_count} x {server.gpu_model} declared, {len(wanted)} measured"
        yield Difference("GPU", "surplus", message, "correct gpu_count")


def named(device: str) -> str:
    """Return a GPU's variant by its device id; the id for one that the table does not have."""
    known = known_gpus().get(device)
    return known.variant if known else f"GPU {NVIDIA}:{device}"


def _is(gpu: Gpu, declared: str) -> bool:
    known = known_gpus().get(gpu.device)
    return known is not None and declared in known


def compared_memory(server: ExpectedServer, inspections: Sequence[Inspection]) -> Iterator[Difference]:
    """Yield how the memory differs."""
    if server.memory_gib is None:
        return
    inspection = next((one for one in inspections if one.memory_mib is not None), None)
    if inspection is None or inspection.memory_mib is None:
        yield Difference(
            "memory", "not measured", f"{server.memory_gib} GiB declared, none measured", "inspect it again"
        )
        return
    share = inspection.memory_mib / (server.memory_gib * 1024)
    least = 1 - INSTALLED_WITHIN if inspection.memory_installed else LEFT_AT_LEAST
    if not least <= share <= 1 + INSTALLED_WITHIN:
        message = f"{server.memory_gib} GiB declared, {inspection.memory_mib / 1024:.4g} GiB measured"
        if share < least:
            yield Difference(
                "memory", "missing", message, "look for a module that is missing or switched off"
            )
        else:
            yield Difference("memory", "surplus", message, "correct memory_gib")


def compared_disks(server: ExpectedServer, inspections: Sequence[Inspection]) -> Iterator[Difference]:
    """Yield how the disks differ."""
    if not server.disks:
        return
    measured = next((one.disks for one in inspections if one.disks is not None), None)
    if measured is None:
        yield Difference("disks", "not measured", "disks declared, none measured", "inspect it again")
        return
    left = list(measured)
    # Kinds that matter choose first, so that they are not left with what suits anybody.
    for disks in sorted(server.disks, key=lambda one: not one.kind):
        fitting = [disk for disk in left if _fits(disk, disks)]
        for disk in fitting[: disks.count]:
            left.remove(disk)
        if len(fitting) < disks.count:
            message = f"{len(fitting)} of {disks} measured"
            yield Difference("disks", "missing", message, "reseat or exchange it, and inspect again")
    for disk in left:
        message = (
            f"{disk.name}, {disk.size / 1e9:.4g} GB{f' {disk.kind}' if disk.kind else ''}, was not declared"
        )
        yield Difference("disks", "surplus", message, "declare it, or take it out")


def _fits(disk: Disk, declared: Disks) -> bool:
    size = declared.size_gb * 10**9
    kind = not declared.kind or not disk.kind or declared.kind == disk.kind
    return kind and abs(disk.size - size) <= DISK_WITHIN * size


def compared_firmware(server: ExpectedServer, inspections: Sequence[Inspection]) -> Iterator[Difference]:
    """Yield which versions differ from the baseline."""
    for component, version in server.firmware:
        measured = next((found for one in inspections if (found := dict(one.firmware).get(component))), None)
        part = f"firmware {component}"
        if measured is None:
            yield Difference(
                part, "not measured", f"{version} declared, none measured", "ask the firmware interface"
            )
        elif measured.lower() != version.lower():
            message = f"{version} declared, {measured} measured"
            yield Difference(
                part, "differs", message, f"bring it to {version}, or correct firmware_{component}"
            )


def compared_tpm(
    server: ExpectedServer, inspections: Sequence[Inspection], index: Index, others: Mapping[str, str]
) -> Iterator[Difference]:
    """Yield how the TPM differs, and whether another server has it too.

    Args:
        server: what was declared.
        inspections: what was measured.
        index: of all servers that are expected.
        others: SHA-256 of an endorsement key to another server in which it was measured.
    """
    declared = server.tpm_ek_sha256
    measured = next((one.tpm for one in inspections if one.tpm is not None), None)
    if measured is None or not measured:
        if declared:
            kind: Kind = "not measured" if measured is None else "missing"
            remedy = (
                "inspect with the agent of ironspan" if measured is None else "switch it on, inspect again"
            )
            yield Difference("TPM", kind, f"{declared[:16]} declared, none measured", remedy)
        return
    owner = index.tpms.get(measured)
    if declared and declared != measured:
        whose = f", which is that of {owner.name}" if owner else ""
        message = f"{declared[:16]} declared, {measured[:16]} measured{whose}"
        yield Difference(
            "TPM", "differs", message, "look which mainboard it is, and correct the file or the rack"
        )
    elif not declared and (other := owner.name if owner else others.get(measured)):
        # No two TPMs have one key, so one of the two is told to say it. Which one is known of declared keys.
        remedy = f"declare tpm_ek_sha256 of both; if the mainboard came from {other}, inspect that one first"
        yield Difference("TPM", "differs", f"{measured[:16]} measured, which is that of {other}", remedy)
