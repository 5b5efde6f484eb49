# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Packed programs (docs/artifacts.md) that the lab runs on this machine, from a place of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from ironspan.lab.errors import LabError


def program(environment: str) -> Path | None:
    """Return an environment's packed program as the mirror's folder has it, None where nobody built it."""
    from ironspan.artifacts import cache, lock_file
    from ironspan.artifacts.lock import native_arch

    file = next(file for file in lock_file.load().files.values() if file.environment == environment)
    path = cache.Cache().below_mirror(file.mirror_path(native_arch()))
    return path if path.is_file() else None


def command(environment: str, title: str) -> list[str]:
    """Return the command of a program; it unpacks itself beside the copy that it runs from.

    Args:
        environment: of the lock file.
        title: what people call it.

    Raises:
        LabError: nobody built it.
    """
    from ironspan.artifacts import cache

    built = program(environment)
    if built is None:
        raise LabError(f"{title} is not built: run `ironspan artifacts build --set bare-metal`")
    place = cache.Cache()
    target = place.root / "lab" / environment / "bin" / built.name
    found = [sys.executable, "-W", "ignore", "-IS", str(target)]
    with place.locked(f"lab-{environment}") as scratch:
        if not target.is_file() or not target.samefile(built):
            target.parent.mkdir(parents=True, exist_ok=True)
            cache.link_or_copy(built, target, scratch)
        run([*found, "--unpack"], title)
    return found


def library(environment: str, title: str) -> Path:
    """Return the folder with a program's modules, for what imports them itself.

    Args:
        environment: of the lock file.
        title: what people call it.

    Raises:
        LabError: nobody built it.
    """
    built = Path(command(environment, title)[-1])
    with zipfile.ZipFile(built) as archive:
        identity = json.loads(archive.read("about.json"))["identity"]
    return built.parent.parent / "lib" / f"{identity}-cp{sys.version_info[0]}{sys.version_info[1]}"


def run(command: list[str], title: str, given: str = "") -> str:
    """Run a command of a program, and return what it printed.

    Args:
        command: with its options.
        title: what people call the program.
        given: its standard input.

    Raises:
        LabError: it failed.
    """
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{command[-1]} of {title} failed: {done.stderr.strip()[-2000:]}", exit_code=1)
    return done.stdout
