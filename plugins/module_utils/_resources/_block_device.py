# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a block device holds, who uses it, and what is mounted where. Nothing here writes."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host, ResourceError

BLANK = "blank:"
"""Key of ``Host.cached``, with a mount point behind it: its disk is blank, so that nothing can be on it."""
LOOKED_AT = 1 << 20
"""Bytes at either end of a device that are zero on a blank one. There lies every signature that blkid
knows, and what no tool knows as a rule: headers of volume managers and databases that take whole disks."""
_NOTHING_FOUND, _SEVERAL = 2, 8
"""Exit codes of ``blkid -p`` (blkid(8)): no signature; several that contradict each other."""
_LAST_MOUNT = 1024 + 44
"""Where ext4 keeps the time of its last mount (s_mtime of struct ext4_super_block), zero before the first."""


class Mount(t.NamedTuple):
    """One line of the mount table: number and source of what is mounted."""

    number: str
    source: str


def mounts(host: Host) -> t.Dict[str, Mount]:
    """Return the mount table: mount point -> what is on top there."""
    found = {}
    for line in (read_text(host, "/proc/self/mountinfo") or "").splitlines():
        # proc_pid_mountinfo(5): id, parent, number, root, mount point, options, ... - type, source, options
        fields, _, rest = line.partition(" - ")
        columns, behind = fields.split(), rest.split()
        if len(columns) >= 6 and len(behind) >= 2:
            # The kernel writes a space in a path as \040.
            found[columns[4].replace("\\040", " ")] = Mount(columns[2], behind[1])
    return found


def first(host: Host, devices: t.Sequence[str]) -> t.Optional[str]:
    """Return the first of some paths that is there, None when none is."""
    return next((path for path in devices if paths.status(host.path(path), follow=True)), None)


def number(host: Host, device: str) -> str:
    """Return a block device's number, such as 8:32.

    Raises:
        ResourceError: it is no block device.
    """
    found = paths.there(host.path(device))
    if not stat.S_ISBLK(found.st_mode):
        raise ResourceError(f"{device} is no block device", "Write the path of a disk below /dev/disk.")
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def users(host: Host, device_number: str) -> t.List[str]:
    """Return who uses a device, in words: partitions, what is made of it (RAID, LVM), mounts, swap."""
    folder = host.path(f"/sys/dev/block/{device_number}")
    found = []
    names = sorted(paths.names(folder)) if paths.is_folder(folder) else []
    found += [f"it has the partition {name}" for name in names if paths.status(f"{folder}/{name}/partition")]
    holders = f"{folder}/holders"
    if paths.is_folder(holders):
        found += [f"{name} is made of it" for name in sorted(paths.names(holders))]
    found += [f"it is mounted at {point}" for point, it in mounts(host).items() if it.number == device_number]
    for line in (read_text(host, "/proc/swaps") or "").splitlines()[1:]:
        swap = line.split()[0].replace("\\040", " ")
        if swap.startswith("/dev/") and first(host, [swap]) and number(host, swap) == device_number:
            found.append("it is swap")
    return found


def signature(host: Host, device: str) -> t.Optional[t.Dict[str, str]]:
    """Return what a device holds as ``blkid`` reads it from the device itself, None for no signature.

    Raises:
        ResourceError: it holds signatures that contradict each other, or cannot be read.
    """
    # Probed anew: blkid's cache, like udev's links, may tell of a disk that was there before.
    argv = ["blkid", "--probe", "--output", "export", paths.real(host.path(device))]
    status, text, trouble = host.run(argv, check=False)
    if status == _NOTHING_FOUND:
        return None
    if status == _SEVERAL:
        remedy = "Look at them with 'wipefs --no-act' on the host; nothing is ever wiped here."
        raise ResourceError(f"{device} holds signatures that contradict each other", remedy)
    if status != 0:
        raise ResourceError(f"{device} cannot be read: {trouble.strip()}", "Look at the disk (dmesg).")
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, equals, value in pairs if equals}


def described(found: t.Mapping[str, str]) -> str:
    """Return what a device holds in an operator's words."""
    if "TYPE" not in found:
        return f"a partition table ({found.get('PTTYPE') or 'of unknown kind'})"
    named = [f"{key} {found[name]}" for key, name in (("label", "LABEL"), ("UUID", "UUID")) if name in found]
    return f"{found['TYPE']} ({', '.join(named) or 'without a name'})"


def size(host: Host, device: str) -> int:
    """Return a device's size in bytes."""
    with paths.reading(host.path(device)) as stream:
        return stream.seek(0, os.SEEK_END)


def is_zero(host: Host, device: str) -> bool:
    """Tell whether both ends of a device are zeros, see ``LOOKED_AT``."""
    with paths.reading(host.path(device)) as stream:
        end = stream.seek(0, os.SEEK_END)
        for start in (0, max(0, end - LOOKED_AT)):
            stream.seek(start)
            if stream.read(LOOKED_AT).strip(b"\0"):
                return False
    return True


def was_mounted(host: Host, device: str) -> bool:
    """Tell whether an ext4 file system was ever mounted, so that something may be in it."""
    with paths.reading(host.path(device)) as stream:
        stream.seek(_LAST_MOUNT)
        return any(stream.read(4))
