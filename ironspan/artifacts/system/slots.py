# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The disk image with two roots, slots a and b, and the boot loader's choice between them.

Both hold the same system when the image is made. Which one starts stands in a block of GRUB's environment on
the EFI partition: GRUB counts the tries of a slot that is on trial, and `boot_slots`, a program of the
image, ends a trial. Names of partitions and UUIDs of file systems are the same in every image.
"""

from __future__ import annotations

import os
import pathlib
import uuid

from ironspan.artifacts.system import disk
from ironspan.artifacts.system.boot_slots import state
from ironspan.artifacts.system.declared import System
from ironspan.artifacts.system.disk import EFI_MIB, MIB, OFFSET_MIB
from ironspan.artifacts.system.tree import call

SLOT_MIB = 3072
"""Size of a root: a quarter is the image's, the rest for packages, kernels, logs. It does not grow."""
ROOM_MIB = 1024
"""What has to be free of it at least when the image is made."""
_SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "slots.ironspan")
UUIDS = {slot: str(uuid.uuid5(_SPACE, slot)) for slot in state.SLOTS}
"""Slot -> UUID of its file system."""
_SERIAL = uuid.uuid5(_SPACE, "efi").hex[:8].upper()
EFI_UUID = f"{_SERIAL[:4]}-{_SERIAL[4:]}"
DATA = "5b1c7a0e-6a4f-4a06-8f2e-0c3d5a7e9b21"
"""The partition that the first start makes: files/slots/etc/repart.d."""

CHOICE = """\
# Chooses the slot that starts (docs/images.md). It is here alone: update-grub writes the slots' own files.
set timeout=1
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
search --no-floppy --fs-uuid --set=esp {efi}
search --no-floppy --fs-uuid --set=slot_a {a}
search --no-floppy --fs-uuid --set=slot_b {b}
set block="($esp)/{block}"
load_env -f "$block" good trial left bad_a bad_b
set boot=$good
if [ "$trial" = a ]; then
    set boot=a
    set other=b
    set bad="$bad_a"
    set bad_other="$bad_b"
elif [ "$trial" = b ]; then
    set boot=b
    set other=a
    set bad="$bad_b"
    set bad_other="$bad_a"
else
    set trial=
fi
if [ "$boot" != b ]; then
    set boot=a
fi
if [ "$trial" != "" ]; then
    if [ "$left" = 3 ]; then
        set left=2
    elif [ "$left" = 2 ]; then
        set left=1
    elif [ "$left" = 1 ]; then
        set left=0
    else
        echo "ironspan: slot $trial failed its trial"
        if [ "$bad" = "" ]; then
            set bad="it did not come up"
        fi
        if [ "$trial" = a ]; then
            set bad_a="$bad"
        else
            set bad_b="$bad"
        fi
        if [ "$good" = "$other" ]; then
            set boot=$other
            set trial=
        elif [ "$bad_other" = "" ]; then
            set boot=$other
            set trial=$other
            set left=2
        else
            set boot=a
            set trial=
        fi
    fi
    save_env -f "$block" trial left bad_a bad_b
fi
if [ "$boot" = a ]; then
    set root=$slot_a
else
    set root=$slot_b
fi
if [ ! -e "($root)/boot/grub/grub.cfg" ]; then
    echo "ironspan: no system is in slot $boot"
    if [ "$boot" = a ]; then
        set bad_a="no system is in it"
        set boot=b
        set root=$slot_b
    else
        set bad_b="no system is in it"
        set boot=a
        set root=$slot_a
    fi
    set trial=
    save_env -f "$block" trial bad_a bad_b
fi
echo "ironspan: slot $boot starts"
set prefix="($root)/boot/grub"
configfile "$prefix/grub.cfg"
"""
GRUB = """\
# Written when the image was made; `update-grub` writes it again, from /etc/default/grub and /etc/grub.d.
set timeout=1
set default=0
set fallback=1
search --no-floppy --fs-uuid --set=root {root}
menuentry "Debian, slot {slot}" {{
    linux /vmlinuz root=UUID={root} ro console=tty0 console=ttyS0,115200n8 panic=30
    initrd /initrd.img
}}
menuentry "Start again" {{
    reboot
}}
"""
FSTAB = """\
UUID={root} / ext4 errors=remount-ro 0 1
PARTUUID={data} /data ext4 x-systemd.device-timeout=10min 0 2
/data/{slot}/containerd /var/lib/containerd none bind,x-systemd.requires-mounts-for=/data 0 0
/data/{slot}/kubelet /var/lib/kubelet none bind,x-systemd.requires-mounts-for=/data 0 0
"""
_FOLDERS = ("boot", "boot/grub", "etc", "data", "var/lib", "var/lib/containerd", "var/lib/kubelet")


def make(system: System, arch: str, tree: pathlib.Path, target: pathlib.Path) -> None:
    """Write the disk image: the EFI partition, and the same system in two slots.

    Args:
        system: the entry of the lock file.
        arch: amd64 or arm64.
        tree: the system's files; mount points, and each slot's own two files, are added.
        target: the file to write; sparse.
    """
    space = uuid.uuid5(uuid.NAMESPACE_URL, system.recipe(arch))
    size = slot_mib(tree)
    begins = {slot: OFFSET_MIB + EFI_MIB + at * size for at, slot in enumerate(state.SLOTS)}
    with target.open("wb") as handle:
        handle.truncate((OFFSET_MIB + EFI_MIB + len(begins) * size + OFFSET_MIB) * MIB)
    command = [
        f"--disk-guid={uuid.uuid5(space, 'disk')}", f"--new=1:{OFFSET_MIB}M:+{EFI_MIB}M",
        "--typecode=1:ef00", "--change-name=1:efi", f"--partition-guid=1:{uuid.uuid5(space, 'efi')}",
    ]  # fmt: skip
    for number, (slot, begin) in enumerate(begins.items(), 2):
        command += [
            f"--new={number}:{begin}M:+{size}M", f"--typecode={number}:{disk.ROOT_TYPES[arch]}",
            f"--change-name={number}:root-{slot}", f"--partition-guid={number}:{uuid.uuid5(space, slot)}",
        ]  # fmt: skip
    call(["sgdisk", *command, target], system.epoch)
    for slot, begin in begins.items():
        _fit(tree, slot, system.epoch)
        seed = str(uuid.uuid5(space, f"hash-{slot}"))
        root = disk.Root(f"root-{slot}", UUIDS[slot], seed, begin, size)
        disk.root_file_system(tree, system.epoch, target, root)
    part = target.with_name("efi.img")
    texts = {"EFI/debian/grub.cfg": choice(), state.BLOCK: state.rendered(state.FIRST)}
    disk.boot_partition(tree, arch, part, EFI_MIB, (_SERIAL, system.epoch), texts)
    disk.copy_into(part, target, OFFSET_MIB * MIB)
    part.unlink()


def choice() -> str:
    """Return the boot loader's choice, as it stands on the EFI partition."""
    return CHOICE.format(efi=EFI_UUID, block=state.BLOCK, **UUIDS)


def slot_mib(tree: pathlib.Path) -> int:
    """Return how large a slot is; that of another image only where the system is large."""
    needed = disk.size_mib(tree) - disk.FREE_MIB + ROOM_MIB
    return max(SLOT_MIB, -(-needed // 1024) * 1024)


def _fit(tree: pathlib.Path, slot: str, epoch: int) -> None:
    """Give a tree what differs between the slots."""
    for folder in _FOLDERS:
        (tree / folder).mkdir(exist_ok=True)
    names = {"slot": slot, "root": UUIDS[slot], "data": DATA}
    for path, text in (("boot/grub/grub.cfg", GRUB), ("etc/fstab", FSTAB)):
        (tree / path).write_text(text.format(**names), encoding="utf-8")
        os.utime(tree / path, (epoch, epoch))
    for folder in _FOLDERS:
        os.utime(tree / folder, (epoch, epoch))
