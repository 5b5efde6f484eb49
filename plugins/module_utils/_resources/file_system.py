# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``file_system``: a disk of its own has a file system, and is mounted, now and after each boot.

A file system is made on a disk that is blank, and on no other: no signature, zeros at both ends, no
partition, no user. What a disk holds is never wiped. Whose a file system is, its UUID says, which the
document gives: a disk of another host, or of another site, is refused like any foreign one.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _block_device as disks
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, write_file
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

UNITS = "/etc/systemd/system"
MAKING_SECONDS = 1800
"""A file system of a few TiB takes seconds; a disk that discards slowly may take minutes."""
LABEL_BYTES = 16
"""ext4 keeps no more (mke2fs(8), -L)."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POINT = re.compile(r"(/[a-z0-9_]+)+")
_UNIT = """# Written by ironspan.
[Unit]
Description=Disk for {point}

[Mount]
What=/dev/disk/by-uuid/{uuid}
Where={point}
Type=ext4
# Without it the boot would wait for the disk, and so would whoever wants to look why it is missing.
# What needs the disk requires this unit.
Options=noatime,nofail

[Install]
WantedBy=multi-user.target
"""


class FileSystemKind:
    """Makes an ext4 file system on a blank disk and mounts it by a unit of systemd."""

    name = "file_system"
    stays = "the file system stays with all that is in it, and stays mounted"
    triable = False
    fields: t.Mapping[str, Field] = {
        "devices": Field((list,), required=True),
        "uuid": Field((str,), required=True),
        "label": Field((str,), required=True),
        "mount_point": Field((str,), required=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Names that systemd and ext4 take as they are."""
        mistakes = [
            f"devices: {device!r} is no path below /dev"
            for device in spec["devices"]
            if not isinstance(device, str) or not device.startswith("/dev/") or ".." in device.split("/")
        ]
        if not spec["devices"]:
            mistakes.append("devices is empty")
        if not _UUID.fullmatch(spec["uuid"]):
            mistakes.append(f"uuid: {spec['uuid']!r} is none; write it in small letters")
        if not 0 < len(spec["label"].encode()) <= LABEL_BYTES:
            mistakes.append(f"label: {spec['label']!r} must have 1 to {LABEL_BYTES} bytes")
        if not _POINT.fullmatch(spec["mount_point"]):
            mistakes.append(
                f"mount_point: {spec['mount_point']!r} must be a path of small letters and digits"
            )
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare what the disk holds, what is mounted, and the unit that mounts it.

        Raises:
            ResourceError: there is no disk, it is not blank and not this host's, or something is in the way.
        """
        device = _device(spec, host)
        point, unit = spec["mount_point"], unit_of(spec["mount_point"])
        mounted = disks.mounts(host).get(point)
        making = False
        if mounted is None:
            making = self._to_be_made(spec, device, host)
            _insist_on_empty(point, device, host)
        else:
            self._insist_on_mounted(spec, device, mounted, host)
        if making:
            host.cached(disks.BLANK + point, lambda: True)
        before: State = {}
        after: State = {}
        reasons = []
        if making:
            before["file_system"], after["file_system"] = "none", f"ext4 ({spec['label']}, {spec['uuid']})"
            before["device"] = after["device"] = device
            reasons.append("the disk is blank")
        if mounted is None:
            before["mounted"], after["mounted"] = "", point
            reasons.append("not mounted")
        if read_text(host, f"{UNITS}/{unit}") != unit_text(spec):
            before["text"], after["text"] = read_text(host, f"{UNITS}/{unit}") or "", unit_text(spec)
            reasons.append("unit file")
        if paths.status(host.path(_wants(unit))) is None:
            before["enabled"], after["enabled"] = False, True
            reasons.append("not enabled")
        if not after:
            return None
        return Change("create" if making else "update", before, after, ", ".join(reasons))

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Make the file system if the disk is blank still, write and enable the unit, mount.

        Raises:
            ResourceError: something is there by now, or a program failed.
        """
        point, unit = spec["mount_point"], unit_of(spec["mount_point"])
        device = _device(spec, host)
        mounted = point in disks.mounts(host)
        if not mounted and self._to_be_made(spec, device, host):
            self._make(spec, device, host)
        host.forget_cached(disks.BLANK + point)
        if "text" in change.after:
            host.backup(f"{UNITS}/{unit}")
            write_file(host, f"{UNITS}/{unit}", unit_text(spec).encode())
            # A unit that is mounted takes its new text with the next boot: nobody loses the disk under it.
            host.run(["systemctl", "daemon-reload"])
        host.run(["systemctl", "enable", "--quiet", "--", unit])
        if not mounted:
            status, _, trouble = host.run(["systemctl", "start", "--", unit], check=False)
            if status != 0 or point not in disks.mounts(host):
                remedy = f"'systemctl status {unit}' and 'dmesg' on the host say why."
                raise ResourceError(f"{device} was not mounted at {point}: {trouble.strip()}", remedy)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Unmount what was mounted; a file system that was made stays, empty."""
        unit = unit_of(spec["mount_point"])
        if "mounted" in change.after:
            host.run(["systemctl", "stop", "--", unit], check=False)
        if "enabled" in change.after:
            host.run(["systemctl", "disable", "--quiet", "--", unit], check=False)

    def settle(self, spec: Spec, change: Change, host: Host) -> None:
        """Let systemd read the unit of before."""
        host.run(["systemctl", "daemon-reload"], check=False)

    def _make(self, spec: Spec, device: str, host: Host) -> None:
        # Noted before, so that the next run knows what a killed mkfs left half-written as this one's.
        host.remember(spec["id"], {"making": spec["uuid"], "on": _identity(device, host)})
        argv = ["mkfs.ext4", "-q", "-U", spec["uuid"], "-L", spec["label"], paths.real(host.path(device))]
        host.run(argv, timeout=MAKING_SECONDS)
        host.remember(spec["id"], {"made": spec["uuid"]})

    def _to_be_made(self, spec: Spec, device: str, host: Host) -> bool:
        """Tell whether a disk that is not mounted is blank; False when it has this host's file system."""
        in_use = disks.users(host, disks.number(host, device))
        if in_use:
            remedy = f"Name a disk that nobody uses, or free this one. It is to be {_wanted(spec)}."
            raise ResourceError(f"{device} is in use: {'; '.join(in_use)}", remedy)
        found = disks.signature(host, device)
        note = host.note(spec["id"])
        begun = note.get("making") == spec["uuid"] and note.get("on") == _identity(device, host)
        if found is None:
            if begun or disks.is_zero(host, device):
                return True
            raise ResourceError(
                f"{device} is not blank: it has no signature that is known, and data at its beginning or end",
                f"Find out whose they are. If nobody needs them: 'blkdiscard --zeroout {device}'.",
            )
        if found.get("TYPE") == "ext4" and found.get("UUID") == spec["uuid"]:
            return begun and not disks.was_mounted(host, device)
        raise ResourceError(
            f"{device} holds {disks.described(found)}, which is not {_wanted(spec)}", _remedy(spec, device)
        )

    def _insist_on_mounted(self, spec: Spec, device: str, mounted: disks.Mount, host: Host) -> None:
        point = spec["mount_point"]
        if mounted.number != disks.number(host, device):
            raise ResourceError(
                f"{mounted.source} is mounted at {point}, and {device} is to be",
                "Name the disk that is mounted there, or unmount it and take it out of /etc/fstab.",
            )
        found = disks.signature(host, device) or {}
        if found.get("UUID") != spec["uuid"]:
            held = disks.described(found) if found else "nothing that is known"
            raise ResourceError(
                f"{device}, mounted at {point}, holds {held}, which is not {_wanted(spec)}",
                _remedy(spec, device),
            )


def unit_of(point: str) -> str:
    """Return the name of the unit that mounts at a path (systemd.mount(5))."""
    return point.strip("/").replace("/", "-") + ".mount"


def unit_text(spec: Spec) -> str:
    """Return that unit's file."""
    return _UNIT.format(point=spec["mount_point"], uuid=spec["uuid"])


def _wants(unit: str) -> str:
    return f"{UNITS}/multi-user.target.wants/{unit}"


def _device(spec: Spec, host: Host) -> str:
    device = disks.first(host, spec["devices"])
    if device is None:
        raise ResourceError(
            f"there is no disk at {' or '.join(spec['devices'])}",
            "Attach it, or correct the path ('ls -lR /dev/disk' on the host); Azure's names need the package "
            "azure-vm-utils or waagent.",
        )
    return device


def _identity(device: str, host: Host) -> t.List[t.Any]:
    return [paths.real(host.path(device)), disks.size(host, device)]


def _wanted(spec: Spec) -> str:
    return f"ext4 with UUID {spec['uuid']}"


def _remedy(spec: Spec, device: str) -> str:
    point = spec["mount_point"]
    return (
        "Attach the disk that belongs here. If it is this one, with data of this host: stop what uses it, "
        f"'umount {point}', 'e2fsck -f {device}', 'tune2fs -U {spec['uuid']} -L {spec['label']} {device}'. "
        f"If nobody needs what it holds: 'wipefs --all {device}', 'blkdiscard --zeroout {device}'. "
        "ironspan wipes nothing."
    )


def _insist_on_empty(point: str, device: str, host: Host) -> None:
    """Refuse to hide files below a mount point; folders without any are no loss."""
    hidden = _a_file_below(host.path(point))
    if hidden is None:
        return
    inside = hidden[len(host.path("/").rstrip("/")) :]
    raise ResourceError(
        f"{point} has files on the disk of the operating system ({inside}), which {device} would hide",
        "A member of etcd moves to its disk by being rebuilt, one after the other: "
        f"playbooks/member_replace.yml. Otherwise stop what uses {point} and move its files away.",
    )


def _a_file_below(folder: str) -> t.Optional[str]:
    try:
        names = sorted(paths.names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    for name in names:
        path = os.path.join(folder, name)
        found = _a_file_below(path) if paths.is_folder(path) else path
        if found is not None:
            return found
    return None


KIND = FileSystemKind()
