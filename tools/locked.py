# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Environments of tools whose pins do not go with ours: each from its own lock, in the cache, by hash."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
import venv

FOLDER = pathlib.Path(__file__).parent


def environment(name: str, takes: str) -> pathlib.Path:
    """Return the folder of the programs of an environment; made where it is not there.

    Args:
        name: of the tool; its packages are in ``tools/NAME.lock``.
        takes: how long that may take, in words.
    """
    lock = FOLDER / f"{name}.lock"
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache / "ironspan" / f"{name}-{digest}"
    done = folder / "installed"
    if not done.exists():
        print(f"== {name} (tools/{lock.name}, checked by hash) into {folder}, {takes}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, "--require-hashes", "-r", str(lock)], check=True)
        done.touch()
    return folder / "bin"
