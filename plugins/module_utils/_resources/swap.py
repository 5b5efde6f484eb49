# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``swap``: swap is off, now and after the next boot."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, write_file
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

FSTAB = "/etc/fstab"
MARK = "#ironspan-swap-off# "
"""Put before a disabled line, so that people see who did it and can take it away."""


def active_devices(text: str) -> t.List[str]:
    """Return the devices and files of /proc/swaps; its first line is a heading."""
    # The kernel writes a space in a file's name as \040.
    return [line.split()[0].replace("\\040", " ") for line in text.splitlines()[1:] if line.strip()]


def without_swap(fstab: str) -> str:
    """Return fstab's text with its swap lines commented out and everything else untouched."""
    lines = fstab.splitlines(keepends=True)
    return "".join(MARK + line if _is_swap(line) else line for line in lines)


def _is_swap(line: str) -> bool:
    fields = line.split()
    return len(fields) >= 3 and not fields[0].startswith("#") and fields[2] == "swap"


class SwapKind:
    """Switches swap off; a kubelet with the usual settings refuses to start beside it."""

    name = "swap"
    stays = "swap stays off"
    fields: t.Mapping[str, Field] = {"state": Field((str,), required=True, choices=("off",))}

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare the running kernel and /etc/fstab."""
        before: State = {}
        after: State = {}
        devices = active_devices(read_text(host, "/proc/swaps") or "")
        if devices:
            before["devices"], after["devices"] = devices, []
        fstab = read_text(host, FSTAB)
        if fstab is not None and without_swap(fstab) != fstab:
            before["text"], after["text"] = fstab, without_swap(fstab)
        if not after:
            return None
        reason = "swap is on" if devices else "swap comes back with the next boot"
        return Change("update", before, after, reason)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Comment the lines out, then switch off.

        Raises:
            ResourceError: the host is a container (its machine's swap is not ours), or memory is too short.
        """
        if "text" in change.after:
            status = os.stat(host.path(FSTAB))
            host.backup(FSTAB)
            write_file(host, FSTAB, change.after["text"].encode(), stat.S_IMODE(status.st_mode))
        if "devices" in change.after:
            if os.path.exists(host.path("/run/systemd/container")):
                raise ResourceError(
                    "swap is on, and this host is a container: swap belongs to the machine outside",
                    "Leave the swap resource out for containers, and set failSwapOn: false for the kubelet.",
                )
            host.run(["swapoff", "-a"])

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Switch the same devices on again."""
        still = active_devices(read_text(host, "/proc/swaps") or "")
        for device in change.before.get("devices", []):
            if device not in still:
                host.run(["swapon", device], check=False)


KIND = SwapKind()
