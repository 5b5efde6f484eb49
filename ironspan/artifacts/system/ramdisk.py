# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A system that runs from memory: its kernel, the packed tree, and the EFI partition of virtual media."""

from __future__ import annotations

import pathlib
import shutil
import uuid

from ironspan.artifacts.system import disk
from ironspan.artifacts.system import tree as trees
from ironspan.artifacts.system.declared import System

EFI_MIB = 8
LEVEL = 9
"""Of zstd; its window is one that every kernel unpacks."""
LABEL = "VMEDIA_BOOT_ISO"
"""The label of the media that Ironic makes."""
FIND_MEDIA = f"""\
# By the media's label. A file's name is on the server's own disk, too, and its old system would start.
search --no-floppy --set=root --label {LABEL}
configfile ($root)/EFI/debian/grub.cfg
"""


def make(system: System, arch: str, tree: pathlib.Path, folder: pathlib.Path) -> None:
    """Write ``kernel``, ``ramdisk`` and ``esp.img`` into a folder.

    Args:
        system: the entry of the lock file.
        arch: amd64 or arm64.
        tree: the system's files; what boots it is taken out.
        folder: where to write.
    """
    shutil.copyfile(trees.kernel(tree), folder / "kernel")
    serial = uuid.uuid5(uuid.NAMESPACE_URL, system.recipe(arch)).hex[:8].upper()
    disk.boot_partition(
        tree, arch, folder / "esp.img", EFI_MIB, (serial, system.epoch), {"EFI/debian/grub.cfg": FIND_MEDIA}
    )
    shutil.rmtree(folder / "esp.d")
    for name in ("boot", "usr/lib/grub", "usr/lib/shim"):
        shutil.rmtree(tree / name)
    for name in ("initrd.img", "vmlinuz"):
        (tree / name).unlink(missing_ok=True)
    (tree / "init").symlink_to("sbin/init")
    trees.settle(tree, system.epoch)
    _pack(tree, folder / "ramdisk", system.epoch)


def _pack(tree: pathlib.Path, target: pathlib.Path, epoch: int) -> None:
    """Pack a tree as the kernel takes it: cpio, then zstd."""
    names = [".", *(path.relative_to(tree).as_posix() for path in tree.rglob("*"))]
    archive = target.with_suffix(".cpio")
    trees.call(
        [
            "cpio", "--quiet", "--create", "--reproducible", "--format=newc", f"--directory={tree}",
            f"--file={archive}",
        ],
        epoch, stdin="\n".join(sorted(names)) + "\n",
    )  # fmt: skip
    trees.call(["zstd", "-q", "-f", f"-{LEVEL}", "-T2", archive, "-o", target], epoch)
    archive.unlink()
