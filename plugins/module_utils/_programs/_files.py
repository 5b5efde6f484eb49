# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all: by the controller, by packed programs, and by single files."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

TEMPORARY_PREFIX = ".writing-"
"""Begins the name of a file that is not finished; a killed writer leaves one."""


def write_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old content or the new one, also after a power cut.

    Args:
        path: the file; its folder must exist.
        content: the whole content.
        mode: the permission bits, set before the content is written.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _synchronise_folder(path.parent)


def _synchronise_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
