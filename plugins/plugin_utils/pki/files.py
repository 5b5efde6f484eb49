# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of the store: written whole or not at all, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import typing as t
from pathlib import Path

_TEMPORARY_PREFIX = ".writing-"


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file so that a reader sees the old content or the new one, also after a power cut.

    Args:
        path: the file; its folder must exist.
        content: the whole content.
        mode: the permission bits, set before the content is written.
    """
    temporary = path.with_name(f"{_TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(8)}")
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


@contextlib.contextmanager
def locked(folder: Path) -> t.Iterator[None]:
    """Hold the folder's lock; other processes wait. What a killed writer left half-written is removed."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for leftover in folder.rglob(f"{_TEMPORARY_PREFIX}*"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def _synchronise_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
