# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``nvlink_fabric``: what manages switches between GPUs runs where the host has such switches.

The host finds that out by itself, and it decides about this host only: units are off where there is none.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import systemd_unit
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Spec,
    State,
)

DEVICES = "/sys/bus/pci/devices"
DRIVER = "/proc/driver/nvidia/version"
NVIDIA, MELLANOX = "0x10de", "0x15b3"
BRIDGE = "0x0680"
"""Class of an NVSwitch up to NVLink 4: a bridge of no other kind (PCI Code and ID Assignment, 06h 80h)."""
MANAGES_SWITCHES = b"SW_MNG"
"""What the adapter that switches of NVLink 5 are managed through says of itself in its vital product data."""
_MOST_BYTES = 1 << 15
"""Bytes of vital product data that a device can have (PCI Local Bus, appendix I)."""


def switches(host: Host, sort: str) -> t.List[str]:
    """Return the PCI addresses of the devices through which a host's switches are managed.

    Args:
        host: the host.
        sort: ``nvswitch`` or ``nvlink5``.
    """
    found = []
    folder = host.path(DEVICES)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        vendor = _read(f"{folder}/{name}/vendor").decode("ascii", "replace").strip()
        if sort == "nvswitch":
            kind = _read(f"{folder}/{name}/class").decode("ascii", "replace")
            is_one = vendor == NVIDIA and kind.startswith(BRIDGE)
        else:
            is_one = vendor == MELLANOX and MANAGES_SWITCHES in _read(f"{folder}/{name}/vpd")
        if is_one:
            found.append(name)
    return found


def _read(path: str) -> bytes:
    try:
        return paths.read(path, _MOST_BYTES)
    except OSError:
        return b""


class NvlinkFabricKind:
    """Enables and starts units, or switches them off; packages are declared elsewhere."""

    name = "nvlink_fabric"
    fields: t.Mapping[str, Field] = {
        "switches": Field((str,), required=True, choices=("nvswitch", "nvlink5")),
        "units": Field((list,), required=True),
        "driver": Field((str,), required=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Units have names."""
        return [mistake for unit in spec["units"] for mistake in systemd_unit.KIND.check({"name": unit})]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look for switches, then at the units."""
        there = switches(host, spec["switches"])
        before: State = {}
        after: State = {}
        for unit in self._units(spec, host, bool(there)):
            change = systemd_unit.KIND.compare(unit, host)
            if change is not None:
                before[unit["name"]], after[unit["name"]] = change.before, change.after
        if not after:
            return None
        reason = f"the host has switches at {', '.join(there)}" if there else "the host has no switches"
        return Change("update", before, after, reason)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Do what differs, unit by unit."""
        for unit in self._units(spec, host, bool(switches(host, spec["switches"]))):
            changed = systemd_unit.KIND.compare(unit, host)
            if changed is not None:
                systemd_unit.KIND.apply(unit, changed, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Have units as they were, the last one first."""
        for unit in reversed(spec["units"]):
            if unit in change.before:
                was = Change("update", change.before[unit], change.after[unit])
                systemd_unit.KIND.undo({"name": unit}, was, host)

    def owns(self, spec: Spec, note: State) -> t.List[str]:
        """Return nothing: units come with their packages."""
        return []

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Switch the units off."""
        return [
            removed for unit in spec["units"] for removed in systemd_unit.KIND.removal({"name": unit}, ())
        ]

    def _units(self, spec: Spec, host: Host, there: bool) -> t.List[Spec]:
        # A fabric manager refuses another driver than its own; which one is loaded changes with a boot.
        loaded = _read(host.path(DRIVER)).decode("ascii", "replace").split()
        state = "started" if spec["driver"] in loaded else "unchanged"
        wanted = {"enabled": there, "state": state if there else "stopped"}
        return [{"kind": "systemd_unit", "name": unit, **wanted} for unit in spec["units"]]


KIND = NvlinkFabricKind()
