# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Durable file operations: everything is written beside its place, synced, then renamed into it."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

TEMPORARY = ".ironspan-"
"""Prefix of every unfinished file; the next run removes such files where a killed run was at work."""

ASIDE = ".ironspan-aside-"
"""Prefix of trees that were moved out of the way and are deleted when the transaction commits."""

_CHUNK = 1 << 20

Ownership = t.Tuple[int, int]

sync_folder = paths.sync_folder


def temporary_beside(path: str) -> t.Tuple[int, str]:
    """Create an empty file (mode 0600) in the folder of ``path``.

    Args:
        path: a path on this machine, already below the private root if there is one.

    Returns:
        The open file descriptor and the file's path.
    """
    folder, name = os.path.split(path)
    for attempt in range(1000):
        candidate = os.path.join(folder, f"{TEMPORARY}{name[:80]}.{os.getpid()}.{attempt}")
        try:
            return paths.create(candidate), candidate
        except FileExistsError:
            continue
    raise FileExistsError(f"{folder}: a thousand unfinished files of {name}")


def finish(
    descriptor: int, temporary: str, path: str, mode: int, owner: t.Optional[Ownership] = None
) -> None:
    """Give a written temporary file its owner and mode, sync it, and rename it into its place.

    Args:
        descriptor: the open temporary file; closed here.
        temporary: its path.
        path: where it belongs, in the same folder.
        mode: permission bits.
        owner: user and group id; None keeps the process's own.
    """
    try:
        paths.give(descriptor, mode, owner)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    paths.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def write_atomically(path: str, data: bytes, mode: int, owner: t.Optional[Ownership] = None) -> None:
    """Replace a file in one step; see ``finish`` for the arguments."""
    descriptor, temporary = temporary_beside(path)
    try:
        with ClosedOnFailure(descriptor):
            write_all(descriptor, data)
        finish(descriptor, temporary, path, mode, owner)
    except BaseException:
        remove_if_there(temporary)
        raise


class ClosedOnFailure:
    """Closes a file when its block fails: removing an open one frees no space, and a rollback may need it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: t.Any, error: t.Any, trace: t.Any) -> None:
        if kind is not None:
            os.close(self._descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, also when the system takes them in pieces."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def remove_if_there(path: str) -> None:
    """Remove a file or link; nothing happens if there is none."""
    try:
        paths.remove(path)
    except FileNotFoundError:
        pass


def signature(status: os.stat_result) -> t.List[int]:
    """Return what changes whenever a file's content may have: size, mtime and ctime (ns), inode."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def sha256_of(path: str) -> str:
    """Return the SHA-256 of a file's content, as hexadecimal digits."""
    import hashlib

    digest = hashlib.sha256()
    with paths.reading(path) as stream:
        while True:
            chunk = stream.read(_CHUNK)
            if not chunk:
                return digest.hexdigest()
            digest.update(chunk)


def status_of(path: str) -> t.Optional[os.stat_result]:
    """Return ``lstat`` of a path, None when there is nothing."""
    return paths.status(path)


def kind_of(status: t.Optional[os.stat_result]) -> str:
    """Name what a path is: absent, file, link, folder or other (device, socket, pipe)."""
    if status is None:
        return "absent"
    for test, name in ((stat.S_ISREG, "file"), (stat.S_ISLNK, "link"), (stat.S_ISDIR, "folder")):
        if test(status.st_mode):
            return name
    return "other"


def mode_text(status: os.stat_result) -> str:
    """Return permission bits as in a document: four octal digits."""
    return f"{stat.S_IMODE(status.st_mode):04o}"


def copy_into(descriptor: int, source: int) -> None:
    """Copy all that an open file holds into another one; both stay open."""
    os.lseek(source, 0, os.SEEK_SET)
    while True:
        chunk = os.read(source, _CHUNK)
        if not chunk:
            return
        write_all(descriptor, chunk)


def copy_open(source: int, target: str) -> None:
    """Copy what an open file holds, durably, to a new file (mode 0600); an older target is replaced."""
    descriptor, temporary = temporary_beside(target)
    try:
        with ClosedOnFailure(descriptor):
            copy_into(descriptor, source)
        finish(descriptor, temporary, target, 0o600)
    except BaseException:
        remove_if_there(temporary)
        raise


def copy_file(source: str, target: str) -> None:
    """Copy content only; see ``copy_open``."""
    with paths.reading(source) as stream:
        copy_open(stream.fileno(), target)


def sweep(folder: str) -> t.List[str]:
    """Remove unfinished files that a killed run left in a folder.

    Args:
        folder: a path on this machine.

    Returns:
        The names removed.
    """
    removed: t.List[str] = []
    try:
        names = paths.names(folder, follow=False)
    except (FileNotFoundError, NotADirectoryError, paths.UnsafePath):
        return removed
    for name in names:
        if name.startswith(TEMPORARY) and not name.startswith(ASIDE):
            path = os.path.join(folder, name)
            if kind_of(status_of(path)) in ("file", "link"):
                remove_if_there(path)
                removed.append(name)
    return removed
