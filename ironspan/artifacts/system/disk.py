# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The disk image of a system: GPT, an EFI partition with shim and signed GRUB, a root on ext4.

No loop device, no mount: the partition table is written into the file, and each file system by a program
that fills it from a folder.
"""

from __future__ import annotations

import os
import pathlib
import typing as t
import uuid

from ironspan.artifacts.system.declared import System
from ironspan.artifacts.system.tree import call, of_tree

MIB = 1 << 20
EFI_MIB = 64
"""FAT32 begins at 33 MB; there is room for a second boot loader and for firmware updates."""
FREE_MIB = 256
"""Room on the root before it grows to the disk at the first boot."""
OFFSET_MIB = 1
"""Where the first partition begins; the table's copy takes as much at the end."""
NAMES = {"amd64": ("x64", "BOOTX64.EFI"), "arm64": ("aa64", "BOOTAA64.EFI")}
"""Architecture -> how Debian's signed boot loaders end, and the name that firmware looks for."""
ROOT_TYPES = {"amd64": "8304", "arm64": "8305"}
"""Type codes of sgdisk for a root partition (discoverable partitions specification)."""
GRUB = """\
# Written when the image was made; `update-grub` writes it again, from /etc/default/grub.
set timeout=1
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
search --no-floppy --fs-uuid --set=root {root}
menuentry "Debian" {{
    linux /vmlinuz root=UUID={root} ro console=tty0 console=ttyS0,115200n8
    initrd /initrd.img
}}
"""
FIND_ROOT = """\
search --no-floppy --fs-uuid --set=root {root}
set prefix=($root)/boot/grub
configfile $prefix/grub.cfg
"""
FSTAB = """\
UUID={root} / ext4 errors=remount-ro 0 1
UUID={efi} /boot/efi vfat umask=0077 0 2
"""


def make(system: System, arch: str, tree: pathlib.Path, target: pathlib.Path) -> None:
    """Write the disk image.

    Args:
        system: the entry of the lock file.
        arch: amd64 or arm64.
        tree: the system's files; the table of file systems and GRUB's configuration are added.
        target: the file to write; sparse.
    """
    space = uuid.uuid5(uuid.NAMESPACE_URL, system.recipe(arch))
    guid = {part: str(uuid.uuid5(space, part)) for part in ("disk", "efi", "root", "root-fs", "hash")}
    serial = uuid.uuid5(space, "efi-fs").hex[:8].upper()
    names = {"root": guid["root-fs"], "efi": f"{serial[:4]}-{serial[4:]}"}
    for path, text in (("boot/grub/grub.cfg", GRUB), ("etc/fstab", FSTAB)):
        (tree / path).write_text(text.format(**names), encoding="utf-8")
        os.utime(tree / path, (system.epoch, system.epoch))
    (tree / "boot/efi").mkdir(exist_ok=True)
    for folder in ("boot", "boot/efi", "boot/grub", "etc"):
        os.utime(tree / folder, (system.epoch, system.epoch))
    root_mib = size_mib(tree)
    with target.open("wb") as handle:
        handle.truncate((OFFSET_MIB + EFI_MIB + root_mib + OFFSET_MIB) * MIB)
    call(
        [
            "sgdisk", f"--disk-guid={guid['disk']}",
            f"--new=1:{OFFSET_MIB}M:+{EFI_MIB}M", "--typecode=1:ef00", "--change-name=1:efi",
            f"--partition-guid=1:{guid['efi']}",
            f"--new=2:{OFFSET_MIB + EFI_MIB}M:+{root_mib}M", f"--typecode=2:{ROOT_TYPES[arch]}",
            "--change-name=2:root", f"--partition-guid=2:{guid['root']}", target,
        ],
        system.epoch,
    )  # fmt: skip
    root = Root("root", guid["root-fs"], guid["hash"], OFFSET_MIB + EFI_MIB, root_mib)
    root_file_system(tree, system.epoch, target, root)
    part = target.with_name("efi.img")
    boot_partition(
        tree, arch, part, EFI_MIB, (serial, system.epoch), {"EFI/debian/grub.cfg": FIND_ROOT.format(**names)}
    )
    copy_into(part, target, OFFSET_MIB * MIB)
    part.unlink()


class Root(t.NamedTuple):
    """A root file system: its label, its UUID, the seed of its directories' hashes, and where it is."""

    label: str
    uuid: str
    seed: str
    offset_mib: int
    size_mib: int


def root_file_system(tree: pathlib.Path, epoch: int, target: pathlib.Path, root: Root) -> None:
    """Write a root's file system into an image.

    Args:
        tree: what is on it.
        epoch: the date in seconds since 1970.
        target: the image.
        root: how and where.
    """
    # The system's own mke2fs: it is as new as its kernel, and the same wherever the image is made.
    call(
        [
            "env", f"MKE2FS_CONFIG={tree / 'etc/mke2fs.conf'}", *of_tree(tree, "usr/sbin/mke2fs"), "-q", "-F",
            "-t", "ext4", "-L", root.label, "-U", root.uuid, "-d", tree,
            "-E", f"hash_seed={root.seed},root_owner=0:0,offset={root.offset_mib * MIB}",
            target, f"{root.size_mib}M",
        ],
        epoch,
    )  # fmt: skip


def boot_partition(
    tree: pathlib.Path,
    arch: str,
    target: pathlib.Path,
    size_mib: int,
    identity: tuple[str, int],
    texts: dict[str, str],
) -> None:
    """Write a FAT file system with shim, MOK manager and signed GRUB where firmware looks for them.

    Args:
        tree: has Debian's signed boot loaders.
        arch: amd64 or arm64.
        target: the file to write.
        size_mib: its size.
        identity: volume serial number (eight hexadecimal digits), and the date in seconds since 1970.
        texts: path -> text of further files.
    """
    serial, epoch = identity
    suffix, boot = NAMES[arch]
    machine = {"amd64": "x86_64", "arm64": "arm64"}[arch]
    loaders = {
        f"EFI/BOOT/{boot}": tree / f"usr/lib/shim/shim{suffix}.efi.signed",
        f"EFI/BOOT/mm{suffix}.efi": tree / f"usr/lib/shim/mm{suffix}.efi.signed",
        f"EFI/BOOT/grub{suffix}.efi": tree / f"usr/lib/grub/{machine}-efi-signed/grub{suffix}.efi.signed",
    }
    content = target.with_suffix(".d")
    for name, text in texts.items():
        loaders[name] = content / name
        loaders[name].parent.mkdir(parents=True, exist_ok=True)
        loaders[name].write_text(text, encoding="utf-8")
        os.utime(loaders[name], (epoch, epoch))
    target.unlink(missing_ok=True)
    with target.open("wb") as handle:
        handle.truncate(size_mib * MIB)
    call(["mkfs.vfat", "--invariant", "-i", serial, "-n", "EFI", target], epoch)
    folders = sorted({str(parent) for name in loaders for parent in pathlib.PurePath(name).parents} - {"."})
    call(["mmd", "-i", target, *(f"::{folder}" for folder in folders)], epoch)
    for name, source in sorted(loaders.items()):
        call(["mcopy", "-m", "-i", target, source, f"::{name}"], epoch)


def size_mib(tree: pathlib.Path) -> int:
    """Return how large the root has to be: what is in it, a tenth for the file system, some room."""
    used = 0
    for path in tree.rglob("*"):
        used += -(-path.lstat().st_size // 4096) * 4096
    return -(-(used * 11 // 10) // (64 * MIB)) * 64 + FREE_MIB


def copy_into(source: pathlib.Path, target: pathlib.Path, offset: int) -> None:
    """Copy a file into another one at an offset, leaving zeros out."""
    with source.open("rb") as reader, target.open("r+b") as writer:
        position = offset
        while block := reader.read(MIB):
            if any(block):
                writer.seek(position)
                writer.write(block)
            position += len(block)
