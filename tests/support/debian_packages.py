# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Debian packages for hosts of a lab, which have no way to Debian's own servers, and packages of our own."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ironspan.lab import Lab, base_image

_TIMEOUT = 300


def collect(names: Sequence[str], folder: Path) -> bool:
    """Fetch packages for the hosts' release, and what they need beside what hosts have, with a list for apt.

    Args:
        names: of the packages.
        folder: gets the packages; it must be there, and empty.

    Returns:
        Whether Debian's servers could be reached.
    """
    base = base_image.tree_path()
    work = folder / "apt"
    (work / "lists" / "partial").mkdir(parents=True)
    (folder / "partial").mkdir()
    settings = {
        "Dir::Etc::sourcelist": base / "etc/apt/sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::trustedparts": base / "etc/apt/trusted.gpg.d",
        "Dir::State::lists": work / "lists",
        "Dir::State::status": base / "var/lib/dpkg/status",
        "Dir::Cache": work,
        "Dir::Cache::archives": folder,
        "APT::Sandbox::User": "root",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    for what in (["update"], ["install", "-y", "--no-install-recommends", "--download-only", *names]):
        done = subprocess.run(
            ["apt-get", "-q", *options, *what], capture_output=True, check=False, timeout=_TIMEOUT
        )
        if done.returncode:
            return False
    packages = sorted(folder.glob("*.deb"))
    (folder / "Packages").write_text("\n".join(map(entry, packages)))
    return bool(packages)


def bring(lab: Lab, host: str, names: Sequence[str], folder: Path) -> None:
    """Install packages, and what they need, on one host.

    Args:
        lab: it is up.
        host: one of its hosts.
        names: of the packages.
        folder: for what is fetched; an empty one.
    """
    assert collect(names, folder), "Debian's servers cannot be reached"
    files = sorted(path.name for path in folder.glob("*.deb"))
    tar = subprocess.run(["tar", "-c", *files], check=True, cwd=folder, stdout=subprocess.PIPE)
    install = (
        "mkdir /root/debs && tar -x -C /root/debs && dpkg --install /root/debs/*.deb && rm -r /root/debs"
    )
    subprocess.run(lab.ssh_command(host, [install]), check=True, input=tar.stdout)


def build(
    folder: Path,
    name: str,
    version: str,
    *,
    needs: str = "",
    files: Mapping[str, bytes] | None = None,
    after: str = "",
) -> Path:
    """Build a package.

    Args:
        folder: where to.
        name: of the package.
        version: of the package.
        needs: what it depends on.
        files: path without a leading slash -> content; those below a folder ``bin`` are programs.
        after: lines of a shell that run when it has been installed.

    Returns:
        The file.
    """
    tree = folder / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    depends = f"Depends: {needs}\n" if needs else ""
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\n{depends}"
        "Maintainer: tests <t@example.com>\nDescription: stand-in\n"
    )
    if after:
        (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\n{after}\n")
        (tree / "DEBIAN/postinst").chmod(0o755)
    for path, content in (files or {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(0o755 if "/bin/" in path else 0o644)
    command = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / f"{name}_{version}_all.deb"


def module(folder: Path, version: str, licence: str) -> bytes:
    """Compile what modinfo reads of a kernel module: an object file with the section of one.

    Args:
        folder: for the source and what is made of it.
        version: of the module.
        licence: of the module.
    """
    source, made = folder / "m.c", folder / "m.ko"
    info = f'"version={version}\\0license={licence}"'
    source.write_text(f'static const char i[] __attribute__((section(".modinfo"), used)) = {info};\n')
    subprocess.run(["gcc", "-c", "-o", str(made), str(source)], check=True)
    return made.read_bytes()


def entry(file: Path) -> str:
    """Return what apt's list of packages says of a file."""
    fields = subprocess.run(["dpkg-deb", "-f", str(file)], text=True, capture_output=True, check=True).stdout
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{fields.rstrip()}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n"
