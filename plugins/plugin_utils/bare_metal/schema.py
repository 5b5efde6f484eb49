# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What can be declared of a server: the keys, and what reads the value of each."""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

type Reader = Callable[[str], str | int]

PLAIN: dict[str, Reader] = {
    "name": values.name,
    "bmc_address": values.address,
    "rack": values.label,
    "position": values.number(1, values.HIGHEST_UNIT, "rack units"),
    "height": values.number(1, values.HIGHEST_UNIT, "rack units"),
    "serial": values.serial,
    "model": values.free_text,
    "group": values.group,
    "gpu_count": values.number(0, 64, "GPUs"),
    "gpu_model": values.gpu_model,
    "memory_gib": values.number(1, 1 << 20, "GiB"),
    "nvlink_domain": values.label,
    "tpm_ek_sha256": values.digest,
}
REQUIRED_OF = {"nic": ("mac",), "disk": ("count", "size_gb")}
REQUIRED = ("name", "bmc_address", "rack", "position")
NIC: dict[str, Reader] = {
    "mac": values.mac,
    "name": values.label,
    "switch": values.label,
    "port": values.free_text,
    "speed_gbit": values.speed,
}
DISK: dict[str, Reader] = {
    "count": values.number(1, values.MOST_OF_A_SIZE, "disks"),
    "size_gb": values.number(1, 10**6, "GB (10^9 bytes)"),
    "kind": values.disk_kind,
}
MOST_NICS = 32
MOST_DISKS = 16
COMPONENT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_USUAL = ("bios", "bmc")
_NUMBERED = re.compile(r"(nic|disk)([1-9][0-9]?)_([a-z_]+)")


class Part(t.NamedTuple):
    """What a key of a list's item says: ``nic2_mac`` is kind nic, number 2, field mac."""

    kind: str
    number: int
    field: str


@functools.cache
def part_of(key: str) -> Part | None:
    """Return which item of which list a key is about, None for one that is about none."""
    match = _NUMBERED.fullmatch(key)
    return Part(match[1], int(match[2]), match[3]) if match else None


@functools.cache
def reader_of(key: str) -> Reader | None:
    """Return what reads the value of a key (``serial``, ``nic2_mac``, ``firmware_bios``); None: unknown."""
    if key in PLAIN:
        return PLAIN[key]
    if key.startswith("firmware_"):
        component = key.removeprefix("firmware_")
        return values.free_text if COMPONENT.fullmatch(component) and not meant(component) else None
    part = part_of(key)
    if part is None:
        return None
    fields, most = (NIC, MOST_NICS) if part.kind == "nic" else (DISK, MOST_DISKS)
    return fields.get(part.field) if part.number <= most else None


def meant(component: str) -> str:
    """Return the component whose letters these are in another order, "" for one of a name of its own."""
    return next((name for name in _USUAL if name != component and sorted(name) == sorted(component)), "")


def nearest_key(key: str) -> str | None:
    """Return the known key that looks most like an unknown one, None when none is close."""
    plain = re.sub(r"[^a-z0-9]+", "_", key[: values.LONGEST].lower()).strip("_")
    if reader_of(plain):
        return plain
    digits = values.DIGITS.search(plain)
    wanted = int(digits[0][:9]) if digits else 1
    nic, disk = (max(1, min(wanted, most)) for most in (MOST_NICS, MOST_DISKS))
    known = [*PLAIN, *(f"nic{nic}_{field}" for field in NIC), *(f"disk{disk}_{field}" for field in DISK)]
    return nearest(plain, [*known, "firmware_bios", "firmware_bmc"])
