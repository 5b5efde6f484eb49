# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What tests drive a browser with: Debian's Chromium, Playwright, and axe, which knows what hinders people.

Playwright comes from tools/browser.lock, axe from npm, pinned by the SHA-512 of its package; both into the
cache, once.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from tools.locked import environment

AXE = "axe-core@4.14.1"
AXE_SHA512 = (
    "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73"
    "4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)
CHROMIUM = pathlib.Path("/usr/bin/chromium")


def missing() -> str:
    """Return what to do where the browser or npm is not installed, an empty text where both are."""
    there = CHROMIUM.exists() and shutil.which("npm")
    return "" if there else "tools/debian-packages browser installs Chromium and npm"


def python() -> pathlib.Path:
    """Return the interpreter that has Playwright."""
    return environment("browser", "half a minute") / "python"


def axe() -> pathlib.Path:
    """Return the script of axe.

    Raises:
        ValueError: what npm gave is another file than the pinned one.
    """
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    script = cache / "ironspan" / f"axe-{AXE_SHA512[:16]}.js"
    if not script.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["npm", "pack", "--silent", AXE], cwd=folder, check=True, stdout=subprocess.DEVNULL
            )
            (package,) = pathlib.Path(folder).glob("*.tgz")
            if hashlib.sha512(package.read_bytes()).hexdigest() != AXE_SHA512:
                raise ValueError(f"{AXE} has another SHA-512 than tools/browser.py pins")
            with tarfile.open(package) as packed:
                packed.extract("package/axe.min.js", folder, filter="data")
            script.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(pathlib.Path(folder) / "package" / "axe.min.js", script.with_suffix(".part"))
            script.with_suffix(".part").replace(script)
    return script
