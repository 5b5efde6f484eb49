# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent, and locks that leave no trace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ironspan.lab.errors import LabError


def write_atomic(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write `content` to `path` so that a reader, or a killed writer, never leaves or sees half of it."""
    # Imported late: commands that use Ansible let it find the collection first.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content.encode() if isinstance(content, str) else content, mode)


def write_if_changed(path: Path, content: str, mode: int = 0o644) -> bool:
    """Write `content` unless the file holds exactly that already; return whether it was written."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text() == content and path.stat().st_mode & 0o7777 == mode:
            return False
    write_atomic(path, content, mode)
    return True


class Lock:
    """An exclusive flock on a file that may be deleted by its holder (`forget`).

    Whoever waited for a deleted file notices that the path names another file and tries again, so
    deleting the lock file on the way out is safe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, patience_s: float | None = None) -> bool:
        """Take the lock; return False when another process still holds it after `patience_s` (None: wait)."""
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while True:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the last lab went, and its folder with it, between the two lines above
            if deadline is None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            while deadline is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        os.close(descriptor)
                        return False
                    time.sleep(0.05)
            try:
                same = os.fstat(descriptor).st_ino == self.path.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:
                self._descriptor = descriptor
                return True
            os.close(descriptor)

    def forget(self) -> None:
        """Delete the lock file; call while the lock is held."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def release(self) -> None:
        """Let the next one in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


#: A program that a killed holder was just starting has the lock until it runs: some milliseconds, or seconds
#: on a machine with much to do.
_PATIENCE_S = 5.0


@contextlib.contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[Lock]:
    """Hold the lock at `path`; with `busy`, raise LabError of that text when another process keeps it."""
    lock = Lock(path)
    if not lock.acquire(None if busy is None else _PATIENCE_S):
        raise LabError(busy or "", exit_code=1)
    try:
        yield lock
    finally:
        lock.release()
