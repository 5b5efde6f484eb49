# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Debian packages for a host of the lab, which reaches no archive; hosts of a site do."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Sequence

from ironspan.lab import Lab, base_image


def bring(lab: Lab, host: str, packages: Sequence[str], folder: pathlib.Path) -> None:
    """Install packages, and what they need beside the lab's base image, on one host.

    Args:
        lab: it is up.
        host: one of its hosts.
        packages: their names.
        folder: for what is fetched; a new one.
    """
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    source = f"deb [signed-by={base_image.KEYRING}] {base_image.ARCHIVE} {base_image.SUITE} main\n"
    (folder / "sources.list").write_text(source)
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": base_image.tree_path() / "var/lib/dpkg/status",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    environment = {**os.environ, "LC_ALL": "C"}
    subprocess.run([*apt, "update"], check=True, env=environment)
    fetch = ["-y", "--no-install-recommends", "--download-only", "install", *packages]
    subprocess.run([*apt, *fetch], check=True, env=environment)
    tar = subprocess.run(
        ["tar", "-c", *sorted(path.name for path in (folder / "archives").glob("*.deb"))],
        check=True,
        cwd=folder / "archives",
        stdout=subprocess.PIPE,
    )
    install = (
        "mkdir /root/debs && tar -x -C /root/debs && dpkg --install /root/debs/*.deb && rm -r /root/debs"
    )
    subprocess.run(lab.ssh_command(host, [install]), check=True, input=tar.stdout)
