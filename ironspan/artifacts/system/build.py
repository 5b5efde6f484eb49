# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes a system's files, and keeps them by the digest of what they are made from."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import os
import pathlib
import shutil
import time

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.artifacts import cache
from ironspan.artifacts.gobuild import KEPT_S
from ironspan.artifacts.system import bill, disk, ramdisk, slots, tree
from ironspan.artifacts.system.declared import System
from ironspan.artifacts.toolchain import DEBIAN_KEYRING
from ironspan.cli.outcome import CommandError, Exit

TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "sgdisk": "gdisk",
    "mkfs.vfat": "dosfstools",
    "mcopy": "mtools",
    "cpio": "cpio",
    "zstd": "zstd",
    "unshare": "util-linux",
}
"""Program -> its Debian package."""


@dataclasses.dataclass(frozen=True)
class Built:
    """The files of a system.

    Args:
        folder: where they are.
        made_from: what went in, in a few words.
    """

    folder: pathlib.Path
    made_from: str


def require() -> None:
    """Refuse to begin a build that could not end.

    Raises:
        CommandError: tools are missing, or the run is not root's; the message has all of it (exit 2).
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None})
    missing += [] if DEBIAN_KEYRING.exists() else ["debian-archive-keyring"]
    problems = []
    if missing:
        names = " ".join(missing)
        problems.append(f"Debian packages are missing: {names}. Install them: apt-get install -y {names}")
    if os.geteuid() != 0:
        problems.append("files of a system belong to root and other accounts of it: run it as root (sudo)")
    if problems:
        raise CommandError(
            "this machine cannot build systems of Debian packages:\n"
            + "\n".join(f"  {one}" for one in problems),
            code=Exit.BAD_INPUT,
        )


def build(
    system: System,
    arch: str,
    place: cache.Cache,
    say: collections.abc.Callable[[str], None],
    newer_than: float = 0.0,
) -> Built:
    """Return a system's files, making them when they are not kept yet (2 to 4 minutes on two cores).

    Args:
        system: the entry of the lock file.
        arch: this machine's architecture.
        place: the cache.
        say: told what is going on.
        newer_than: what was kept before this time (seconds since 1970) is made again.

    Raises:
        CommandError: something that makes them failed.
    """
    folder = place.root / "systems" / f"{system.name}-{arch}-{system.recipe(arch)[:16]}"
    record = folder / "record.json"
    with place.locked(f"system-{system.name}", lambda: say(f"waiting for {system.name}")) as scratch:
        if record.exists() and record.stat().st_mtime >= newer_than:
            known = json.loads(record.read_text(encoding="utf-8"))
            if all(cache.has_digest(folder / name, digest) for name, digest in known["digests"].items()):
                os.utime(folder)
                return Built(folder, known["made_from"])
        place.discard(scratch)
        say("fetching wheels" if system.wheels else "unpacking Debian packages")
        brought = tree.fetched(system, arch, scratch)
        say(f"unpacking {len(system.packages)} Debian packages and what they need")
        files = tree.make(system, arch, scratch, brought)
        (scratch / "bom.json").write_text(bill.render(system, arch, files, brought), encoding="utf-8")
        made_from = f"Debian {system.suite}, {len(bill.packages(files))} packages" + (
            f"; {len(brought)} wheels" if brought else ""
        )
        say("packing")
        if system.kind == "disk":
            layout = slots if system.layout == "ab" else disk
            layout.make(system, arch, files, scratch / "disk.raw")
        else:
            ramdisk.make(system, arch, files, scratch)
        digests = {}
        for name in system.members:
            digests[name] = cache.digest_of(scratch / name)
            cache.publish(scratch / name, folder / name)
        write_file(record, json.dumps({"digests": digests, "made_from": made_from}).encode())
        place.discard(scratch)
        _forget(system, arch, folder)
    return Built(folder, made_from)


def _forget(system: System, arch: str, current: pathlib.Path) -> None:
    """Remove what other recipes made of a system and nobody has long used."""
    for folder in current.parent.glob(f"{system.name}-{arch}-*"):
        if folder != current and time.time() - folder.stat().st_mtime > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
