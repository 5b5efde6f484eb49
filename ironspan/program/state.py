# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of a program that are there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file, in place of one that may be there; a kill leaves the old one or the new one.

    Args:
        path: the file, in a folder that is there.
        content: all of it.
        mode: of the file, from its first byte on.

    Raises:
        OSError: it cannot be written; what was there still is.
    """
    new = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, mode)
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    new.replace(path)


def write_json(path: Path, data: object) -> None:
    """Write what JSON can say, as ``write`` does."""
    write(path, (json.dumps(data, indent=1) + "\n").encode())
