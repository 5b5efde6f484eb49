# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A folder that hosts of a lab install Debian packages from: they have no way to Debian's own servers."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from ironspan.lab import base_image

_TIMEOUT = 300


def collect(name: str, folder: Path) -> bool:
    """Fetch a package for the hosts' release, and what it needs beside what hosts have, with a list for apt.

    Args:
        name: of the package.
        folder: gets the packages; it must be there.

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
    for what in (["update"], ["install", "-y", "--no-install-recommends", "--download-only", name]):
        done = subprocess.run(
            ["apt-get", "-q", *options, *what], capture_output=True, check=False, timeout=_TIMEOUT
        )
        if done.returncode:
            return False
    packages = sorted(folder.glob("*.deb"))
    (folder / "Packages").write_text("\n".join(map(entry, packages)))
    return bool(packages)


def entry(file: Path) -> str:
    """Return what apt's list of packages says of a file."""
    fields = subprocess.run(["dpkg-deb", "-f", str(file)], text=True, capture_output=True, check=True).stdout
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{fields.rstrip()}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n"
