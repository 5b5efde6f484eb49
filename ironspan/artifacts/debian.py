# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Base layers of images from Debian packages: unpacked by mmdebstrap, trimmed, packed reproducibly."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import urllib.parse

from ironspan.artifacts import cache, pack, toolchain
from ironspan.artifacts.lock import Base
from ironspan.cli.outcome import CommandError

LAYER = 1
"""Raise it when this file makes another layer from the same packages."""
DROPPED = (
    "usr/share/doc/*/changelog*", "usr/share/doc/*/NEWS*", "usr/share/doc/*/examples/*", "usr/share/man/*",
    "usr/share/locale/*", "usr/share/lintian/*", "usr/share/bug/*", "usr/share/bash-completion/*",
    "usr/share/initramfs-tools/*", "usr/lib/*/gconv/*", "usr/lib/*/libmvec.so*", "usr/share/gcc/*",
)  # fmt: skip
"""Of the packages' files, what a program in an image never reads. The copyright files stay."""
MERGED = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
"""Debian ships everything below /usr; these links come with a package that an image does not need."""
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


def recipe(base: Base) -> str:
    """Return a digest of what decides a base layer, but for the versions of its packages."""
    decides = [LAYER, base.suite, base.packages, sorted(base.links.items()), base.applets, DROPPED]
    text = json.dumps([*decides, *([base.files] if base.files else [])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make(base: Base, arch: str, layer: pathlib.Path, scratch: pathlib.Path) -> list[str]:
    """Make a base layer.

    Args:
        base: what it holds.
        arch: this machine's architecture (its busybox is run to learn its applets).
        layer: the tar file to write.
        scratch: folder for work in between.

    Returns:
        The packages that went in, NAME_VERSION, for the record.

    Raises:
        CommandError: mmdebstrap failed; the message has the end of its output.
    """
    unpacked = scratch / "base.tar"
    # mmdebstrap refuses to write over what a killed run left.
    unpacked.unlink(missing_ok=True)
    listing = scratch / "packages"
    hook = f'ls "$1/var/cache/apt/archives" > {listing}'
    command = [
        "mmdebstrap", "--variant=extract", f"--include={','.join(base.packages)}", f"--architectures={arch}",
        f"--keyring={toolchain.DEBIAN_KEYRING}", f"--extract-hook={hook}", base.suite, str(unpacked),
    ]  # fmt: skip
    mirror = os.environ.get("IRONSPAN_DEBIAN_MIRROR", "")
    answer = subprocess.run(
        [*command, *([mirror] if mirror else [])],
        capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    if answer.returncode != 0:
        tail = "\n".join(f"  {line}" for line in answer.stderr.splitlines()[-8:])
        raise CommandError(
            f"mmdebstrap could not unpack {', '.join(base.packages)} of Debian {base.suite}:\n{tail}",
            "Check the connection to the Debian mirror (IRONSPAN_DEBIAN_MIRROR names another one).",
        )
    try:
        _trim(base, unpacked, layer, scratch)
    finally:
        unpacked.unlink(missing_ok=True)
    files = [line for line in listing.read_text(encoding="utf-8").split() if line.endswith(".deb")]
    return sorted(urllib.parse.unquote(name.rpartition("_")[0]) for name in files)


def _trim(base: Base, unpacked: pathlib.Path, layer: pathlib.Path, scratch: pathlib.Path) -> None:
    """Copy what an image needs, sorted, without times; add our own files, links, applets and accounts."""
    with tarfile.open(unpacked) as source, layer.open("wb") as target:
        archive = pack.Archive(target)
        for name, link in MERGED.items():
            archive.link(name, link)
        archive.folder("tmp", 0o1777)
        archive.folder("root", 0o700)
        archive.text("etc/passwd", PASSWD)
        archive.text("etc/group", GROUP)
        # What the lock file names wins over packages and applets: another shell, say.
        files = {name.lstrip("/"): text for name, text in base.files.items()}
        present = set(files)
        for member in sorted(source.getmembers(), key=lambda item: item.name):
            name = member.name.removeprefix("./")
            if not (name.startswith("usr/") or name == "etc/protocols") or not _wanted(name):
                continue
            if name in files:
                continue
            content = source.extractfile(member) if member.isfile() or member.islnk() else None
            if content is not None:
                # A hard link is copied: in the lists above it is rare and small.
                size = content.seek(0, os.SEEK_END)
                content.seek(0)
                archive.stream(name, content, size, member.mode & 0o7777)
            elif member.issym():
                archive.link(name, member.linkname)
            elif member.isdir():
                archive.folder(name)
            present.add(name)
        for name, text in sorted(files.items()):
            archive.text(name, text, 0o755 if text.startswith("#!") else 0o644)
        links = {name.lstrip("/"): target for name, target in base.links.items()}
        for name, link in sorted({**_applets(base, source, scratch), **links}.items()):
            if name not in present:
                archive.link(name, link)
        archive.close()


def _wanted(name: str) -> bool:
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in DROPPED)


def _applets(base: Base, source: tarfile.TarFile, scratch: pathlib.Path) -> dict[str, str]:
    """Return links from busybox's applets to busybox: name below / -> target."""
    if not base.applets:
        return {}
    program = scratch / "busybox"
    content = source.extractfile("./usr/bin/busybox")
    if content is None:
        raise CommandError(
            f"base {base.name} asks for applets, but has no busybox", "Add busybox-static to its packages."
        )
    with program.open("wb") as handle:
        shutil.copyfileobj(content, handle, cache.CHUNK)
    program.chmod(0o755)
    listing = subprocess.run([str(program), "--list-full"], capture_output=True, text=True, check=True)
    program.unlink()
    links: dict[str, str] = {}
    for line in listing.stdout.split():
        name = line.rpartition("/")[2]
        if base.applets == "all" or name in base.applets:
            # Below /usr like everything else; /bin and /sbin are links to there.
            folder = "usr/sbin" if "sbin/" in line else "usr/bin"
            links[f"{folder}/{name}"] = "/usr/bin/busybox"
    return links
