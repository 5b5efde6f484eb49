# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keeping the earlier state of paths, and bringing it back."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import (
    ASIDE,
    copy_into,
    copy_open,
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
    if what == "link":
        record["target"] = paths.link_target(path)
    elif what == "file":
        copy = os.path.join(folder, str(number))
        record["copy"] = str(number)
        remove_if_there(copy)
        source = paths.opened(path, follow=False)
        try:
            # Of the very file that is kept, whatever has that name by now.
            status = os.fstat(source)
            if status.st_size < LINK_ABOVE_BYTES or not _linked(path, copy):
                copy_open(source, copy)
        finally:
            os.close(source)
        record.update(mtime=status.st_mtime_ns, atime=status.st_atime_ns)
    record.update(mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
    return record


def _linked(path: str, copy: str) -> bool:
    try:
        paths.make_hard_link(path, copy)
    except OSError:
        # Another file system, one without hard links, or a folder that others can change.
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
            paths.remove(path)
        if now != "folder":
            paths.make_folder(path, 0o700)
        paths.set_owner_and_mode(path, record["mode"], (record["uid"], record["gid"]), follow=False)
    elif what == "link":
        if now == "folder":
            return f"{path} was a link and is a folder now"
        descriptor, temporary = temporary_beside(path)
        os.close(descriptor)
        paths.remove(temporary)
        paths.make_link(record["target"], temporary, (record["uid"], record["gid"]))
        paths.rename(temporary, path)
    elif what == "file":
        if now == "folder":
            return f"{path} was a file and is a folder now"
        _restore_file(path, record, folder)
    sync_folder(os.path.dirname(path))
    return None


def _restore_file(path: str, record: Record, folder: str) -> None:
    copy = os.path.join(folder, record["copy"])
    owner = (record["uid"], record["gid"])
    descriptor, temporary = temporary_beside(path)
    try:
        source = paths.opened(copy, follow=False)
        try:
            # A hard link keeps the very file that was there; a copy brings back content, owner and times.
            if os.fstat(source).st_size >= LINK_ABOVE_BYTES:
                paths.remove(temporary)
                if _linked(copy, temporary):
                    os.close(descriptor)
                    descriptor = paths.opened(temporary, follow=False)
                else:
                    os.close(descriptor)
                    descriptor = paths.create(temporary)
            paths.give(descriptor, record["mode"], owner)
            if not os.path.sameopenfile(source, descriptor):
                # Nobody had it open while others might read it: that is set before the first byte is written.
                copy_into(descriptor, source)
            os.utime(descriptor, ns=(record["atime"], record["mtime"]))
            os.fsync(descriptor)
        finally:
            os.close(source)
            os.close(descriptor)
        paths.rename(temporary, path)
        # Renaming one hard link of a file onto another does nothing and leaves both names.
        remove_if_there(temporary)
    except BaseException:
        remove_if_there(temporary)
        raise


def _remove(path: str, now: str) -> t.Optional[str]:
    if now == "absent":
        return None
    if now != "folder":
        paths.remove(path)
    else:
        try:
            paths.remove_folder(path)
        except OSError:
            # Something else wrote into it meanwhile: that is not this transaction's to delete.
            return f"{path} is left, it is not empty"
    sync_folder(os.path.dirname(path))
    return None


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
    paths.rename(aside, path)
    sync_folder(os.path.dirname(path))
    return None


def delete_tree(path: str) -> None:
    """Delete a file, link or whole tree; nothing happens if there is none."""
    if status_of(path) is not None:
        paths.remove_tree(path)
