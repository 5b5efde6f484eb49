# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changing the store: one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import TEMPORARY_PREFIX


@contextlib.contextmanager
def locked(folder: Path) -> t.Iterator[None]:
    """Hold the folder's lock; other processes wait. What a killed writer left half-written is removed."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for leftover in folder.rglob(f"{TEMPORARY_PREFIX}*"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)
