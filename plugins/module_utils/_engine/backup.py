# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keeping the earlier state of paths, and bringing it back."""

from __future__ import annotations

import os
import shutil
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.files import (
    ASIDE,
    copy_file,
    kind_of,
    remove_if_there,
    status_of,
    sync_folder,
    temporary_beside,
)

Record = t.Dict[str, t.Any]

LINK_ABOVE_BYTES = 4 << 20
"""Larger files are kept by a hard link, not a copy: binaries are replaced by rename, never rewritten."""


def take(path: str, folder: str, number: int) -> Record:
    """Keep a file's content and describe the path; nothing is kept of a folder but its mode and owner.

    Args:
        path: a path on this machine.
        folder: where copies go.
        number: makes the copy's name.

    Returns:
        A description for the journal, for ``restore``.
    """
    status = status_of(path)
    what = kind_of(status)
    record: Record = {"what": what}
    if status is None:
        return record
    record.update(mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
    if what == "link":
        record["target"] = os.readlink(path)
    elif what == "file":
        copy = os.path.join(folder, str(number))
        record.update(copy=str(number), mtime=status.st_mtime_ns, atime=status.st_atime_ns)
        remove_if_there(copy)
        if status.st_size < LINK_ABOVE_BYTES or not _linked(path, copy):
            copy_file(path, copy)
    return record


def _linked(path: str, copy: str) -> bool:
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:
        # Another file system, or one without hard links.
        return False
    sync_folder(os.path.dirname(copy))
    return True


def restore(path: str, record: Record, folder: str) -> t.Optional[str]:
    """Bring a path back to what ``take`` found. Doing it twice is harmless.

    Args:
        path: a path on this machine.
        record: what ``take`` returned.
        folder: where the copies are.

    Returns:
        What could not be brought back, in words; None if all is well.
    """
    now = kind_of(status_of(path))
    what = record["what"]
    if what == "absent":
        return _remove(path, now)
    if what == "folder":
        if now in ("file", "link"):
            os.unlink(path)
        if now != "folder":
            os.mkdir(path)
        _set_owner(path, record)
        os.chmod(path, record["mode"])
    elif what == "link":
        if now == "folder":
            return f"{path} was a link and is a folder now"
        descriptor, temporary = temporary_beside(path)
        os.close(descriptor)
        os.unlink(temporary)
        os.symlink(record["target"], temporary)
        _set_owner(temporary, record)
        os.rename(temporary, path)
    elif what == "file":
        if now == "folder":
            return f"{path} was a file and is a folder now"
        _restore_file(path, record, folder)
    sync_folder(os.path.dirname(path))
    return None


def _restore_file(path: str, record: Record, folder: str) -> None:
    copy = os.path.join(folder, record["copy"])
    descriptor, temporary = temporary_beside(path)
    os.close(descriptor)
    try:
        # A hard link keeps the very file that was there; a copy brings back content, owner, mode and times.
        os.unlink(temporary)
        if os.stat(copy).st_size < LINK_ABOVE_BYTES or not _linked(copy, temporary):
            shutil.copyfile(copy, temporary)
        _set_owner(temporary, record)
        os.chmod(temporary, record["mode"])
        os.utime(temporary, ns=(record["atime"], record["mtime"]))
        descriptor = os.open(temporary, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(temporary, path)
        # Renaming one hard link of a file onto another does nothing and leaves both names.
        remove_if_there(temporary)
    except BaseException:
        remove_if_there(temporary)
        raise


def _remove(path: str, now: str) -> t.Optional[str]:
    if now == "absent":
        return None
    if now != "folder":
        os.unlink(path)
    else:
        try:
            os.rmdir(path)
        except OSError:
            # Something else wrote into it meanwhile: that is not this transaction's to delete.
            return f"{path} is left, it is not empty"
    sync_folder(os.path.dirname(path))
    return None


def _set_owner(path: str, record: Record) -> None:
    status = os.lstat(path)
    if (status.st_uid, status.st_gid) != (record["uid"], record["gid"]):
        os.chown(path, record["uid"], record["gid"], follow_symlinks=False)


def aside_name(path: str, number: int) -> str:
    """Return where a tree waits until the transaction ends: beside its place, so that a rename moves it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{ASIDE}{number}-{name}")


def bring_back(path: str, aside: str) -> t.Optional[str]:
    """Undo a move aside; returns what could not be done, None if all is well."""
    if status_of(aside) is None:
        return None
    if status_of(path) is not None:
        return f"{path} is there again, the earlier one is {aside}"
    os.rename(aside, path)
    sync_folder(os.path.dirname(path))
    return None


def delete_tree(path: str) -> None:
    """Delete a file, link or whole tree; nothing happens if there is none."""
    if kind_of(status_of(path)) == "folder":
        shutil.rmtree(path)
    else:
        remove_if_there(path)
