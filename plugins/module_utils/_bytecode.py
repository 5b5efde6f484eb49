# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Compiled code, kept on the host: a third of what a run that changes nothing would otherwise cost.

Python compiles what Ansible sends each time it is sent. The first run that writes to the host therefore
keeps this collection's part compiled, below the engine's own folder, which only root can write to; later
runs that are sent the very same code take it from there.
"""

from __future__ import annotations

import os
import sys
import typing as t

IDENTITY = ""
"""Digest of the payload. It is filled in when the payload is packed; without it nothing is kept or used."""

FOLDER = "/var/lib/ironspan/code"


_PACKAGE = sys.modules[__name__.rpartition(".")[0]]
"""What lies beside this module."""


def _home(root: str) -> str:
    # Another Python needs other bytecode.
    return f"{root.rstrip('/')}{FOLDER}/{IDENTITY}-{sys.implementation.cache_tag}"


def use(root: str) -> None:
    """Import the rest of the collection from what an earlier run kept, if it is the same.

    Args:
        root: the host's root folder.
    """
    if IDENTITY and os.path.isdir(_home(root)):
        # What is missing there is still found in what was sent.
        t.cast("t.List[str]", _PACKAGE.__path__).insert(0, _home(root))


def keep(root: str) -> str:
    """Keep the collection's code compiled, once, and give up older code. What fails is left undone.

    Args:
        root: the host's root folder; the engine's folder is there.

    Returns:
        The folder with the code; empty when nothing is kept.
    """
    archive: t.Optional[str] = getattr(_PACKAGE.__loader__, "archive", None)
    if not IDENTITY or not archive:
        return ""
    if os.path.isdir(_home(root)):
        return _home(root)
    import shutil

    unfinished = os.path.join(root.rstrip("/") + FOLDER, ".ironspan-new")
    try:
        shutil.rmtree(root.rstrip("/") + FOLDER, ignore_errors=True)
        _unpack(archive, unfinished)
        os.rename(unfinished, _home(root))
        return _home(root)
    except (OSError, SyntaxError, ValueError):
        shutil.rmtree(root.rstrip("/") + FOLDER, ignore_errors=True)
        return ""


def _unpack(archive: str, folder: str) -> None:
    """Write each module and its bytecode, durably: half a file would break every later run."""
    import py_compile
    import zipfile

    prefix = _PACKAGE.__name__.replace(".", "/") + "/"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    with zipfile.ZipFile(archive) as source:
        for name in source.namelist():
            if not name.startswith(prefix) or not name.endswith(".py"):
                continue
            path = os.path.join(folder, name[len(prefix) :])
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(source.read(name))
            compiled = py_compile.compile(path, dfile=name, doraise=True, invalidation_mode=mode)
            for written in (path, compiled):
                descriptor = os.open(str(written), os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
