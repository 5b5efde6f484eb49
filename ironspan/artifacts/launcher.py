# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a packed program begins with: unpacks it once, in the folder ``lib`` beside its own, and starts it.

Compiled modules cannot be loaded from an archive. What is unpacked is named after its content, so a program
that was replaced, or put back, never runs with another one's code. ``--unpack`` unpacks and removes what
other versions left, for a service that may not write there.

Standard library only; readable by older Pythons too, so that they are told what is wrong.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import shutil
import sys
import zipfile
from collections.abc import Sequence
from os import sync, umask
from pathlib import Path

KEPT = 2
"""Unpacked versions that stay: this one, and the former for the way back."""


def main(archive: str, arguments: Sequence[str]) -> object:
    """Run the program in an archive.

    Args:
        archive: path of the file.
        arguments: its command line.

    Returns:
        What its ``main()`` returned: the exit code.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with zipfile.ZipFile(archive) as source:
        about = json.loads(source.read("about.json"))
        if python not in about["pythons"]:
            sys.exit(f"{archive} runs with Python {' or '.join(about['pythons'])}; this host has {python}.")
        tag = "cp" + python.replace(".", "")
        library = Path(archive).resolve().parent.parent / "lib"
        folder = library / f"{about['identity']}-{tag}"
        only_unpacks = list(arguments) == ["--unpack"]
        if only_unpacks:
            # Done by root for an account that reads it, under a unit's UMask=0077. It is code, no secret.
            umask(0o022)
        if not folder.is_dir():
            unpack(source, ("code/", "common/", tag + "/"), folder)
    if only_unpacks:
        remove_others(folder)
        return 0
    sys.path.insert(0, str(folder))
    return importlib.import_module(about["module"]).main()


def unpack(source: zipfile.ZipFile, parts: Sequence[str], folder: Path) -> None:
    """Unpack parts of an archive into one folder, which appears whole; several processes may try at once."""
    import compileall

    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return
        temporary = folder.parent / ".unpacking"
        shutil.rmtree(temporary, ignore_errors=True)
        for info in source.infolist():
            part = next((part for part in parts if info.filename.startswith(part)), None)
            if part is None:
                continue
            path = temporary / info.filename[len(part) :]
            path.parent.mkdir(parents=True, exist_ok=True)
            with source.open(info) as content, path.open("wb") as target:
                shutil.copyfileobj(content, target, 1 << 20)
        compileall.compile_dir(temporary, quiet=2, stripdir=str(temporary), prependdir=str(folder))
        sync()
        temporary.rename(folder)


def remove_others(folder: Path) -> None:
    """Remove what earlier versions unpacked, but for the latest of them."""
    entries = [path for path in folder.parent.iterdir() if not path.name.startswith(".") and path != folder]
    entries.sort(key=lambda path: path.stat().st_mtime)
    for path in entries[: len(entries) - (KEPT - 1)]:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[0], sys.argv[1:]))  # type: ignore[arg-type]
