# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent, and locks that leave no trace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ironspan.lab.errors import LabError


def write_atomic(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write `content` to `path` so that a reader, or a killed writer, never leaves or sees half of it."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


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

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock; with `wait` false return False at once when another process holds it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                return False
            try:
                same = os.fstat(descriptor).st_ino == self.path.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:
                self._descriptor = descriptor
                return True
            os.close(descriptor)
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def forget(self) -> None:
        """Delete the lock file; call while the lock is held."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def release(self) -> None:
        """Let the next one in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[Lock]:
    """Hold the lock at `path`; with `busy` do not wait but raise LabError with that message."""
    lock = Lock(path)
    if not lock.acquire(wait=busy is None):
        raise LabError(busy or "", exit_code=1)
    try:
        yield lock
    finally:
        lock.release()
