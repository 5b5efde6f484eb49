# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Operations on paths that somebody else may change while root works on them. Everything else calls these.

A path is walked folder by folder, each opened from the one before and held. A folder is *kept* if all on the
way to it belongs to root (or to this process's user) and nobody else may change it. In a kept folder symbolic
links of root's are followed as usual; one of somebody else's was made before the folder was kept. From the
first other folder on none is, and a file with a second name (a hard link) is neither read nor changed: it may
be anybody's. What is found out about a file is asked of its descriptor, and so are owner and mode set:
whatever its name leads to by then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import typing as t

_LOOK = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_LINKS = 40  # as many as the kernel follows
_OTHERS = "in a folder that others than root can change"


class UnsafePath(OSError):
    """A path leads where the owner of a folder on its way wants, and not where it says.

    Args:
        path: where.
        what: what is there, as the end of a sentence that begins with the path.
    """

    remedy = "Find out who made it; remove it on the host, and run again."

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.ELOOP, what, path)


class Place(t.NamedTuple):
    """Where a path leads: an open folder and a name in it, and whether that folder is kept."""

    folder: int
    name: str
    kept: bool
    path: str


def _mine(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())


@contextlib.contextmanager
def place(path: str, follow: bool = False) -> t.Iterator[Place]:
    """Walk to the folder that a path lies in.

    Args:
        path: a path on this machine.
        follow: whether a link at the end of it is followed too.

    Raises:
        UnsafePath: there is a link where none is followed.
        OSError: a folder on the way is missing, or is none.
    """
    here = os.open("/", _LOOK)
    kept, links = True, 0
    parts = _parts(path if path.startswith("/") else os.path.abspath(path))
    try:
        while len(parts) > 1 or (follow and parts):
            part = parts.pop()
            try:
                child = os.open(part, _LOOK | os.O_NOFOLLOW, dir_fd=here)
            except FileNotFoundError:
                if parts:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
                parts.append(part)
                break
            found = os.fstat(child)
            if stat.S_ISDIR(found.st_mode) and parts:
                os.close(here)
                here = child
                # The group root is root.
                shared = found.st_mode & (0o022 if found.st_gid else 0o002)
                kept = kept and _mine(found) and (not shared or bool(found.st_mode & stat.S_ISVTX))
                continue
            os.close(child)
            if not stat.S_ISLNK(found.st_mode):
                if parts:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                parts.append(part)
                break
            links += 1
            if not kept or links > _LINKS or not _mine(found):
                whose = "that is not root's" if kept and links <= _LINKS else _OTHERS
                raise UnsafePath(path, f"is or leads through a symbolic link {whose}")
            target = os.readlink(part, dir_fd=here)
            if target.startswith("/"):
                os.close(here)
                here = os.open("/", _LOOK)
            parts += _parts(target)
        yield Place(here, parts[0] if parts else ".", kept, path)
    finally:
        os.close(here)


def _parts(path: str) -> t.List[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def opened(path: str, flags: int = os.O_RDONLY, follow: bool = True) -> int:
    """Open a file or folder that is there; the caller closes it.

    Args:
        path: a path on this machine.
        flags: as of ``os.open``, without O_CREAT.
        follow: whether a link at its end is followed where links are.

    Raises:
        UnsafePath: it is a link where none is followed, a file with several names, or a pipe or device
            in a folder that others can change.
    """
    with place(path, follow) as at:
        # A pipe would wait for its other end.
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(at.name, flags, dir_fd=at.folder)
        except OSError as error:
            if error.errno == errno.ELOOP and not at.kept:
                raise UnsafePath(path, f"is a symbolic link {_OTHERS}") from None
            raise type(error)(error.errno, error.strerror, path) from None
        found = os.fstat(descriptor)
        what = ""
        if not at.kept and not stat.S_ISDIR(found.st_mode):
            if not stat.S_ISREG(found.st_mode):
                what = "is no ordinary file"
            elif found.st_nlink > 1:
                what = "has other names too (hard links) and lies"
        if what:
            os.close(descriptor)
            raise UnsafePath(path, f"{what} {_OTHERS}")
        return descriptor


@contextlib.contextmanager
def reading(path: str) -> t.Iterator[t.BinaryIO]:
    """Open a file for reading bytes; see ``opened``."""
    with os.fdopen(opened(path), "rb") as stream:
        yield stream


def read(path: str, most: int = -1) -> bytes:
    """Return a file's content, or its first ``most`` bytes."""
    with reading(path) as stream:
        return stream.read(most)


def text(path: str) -> str:
    """Return a file's content as text; bytes that are no UTF-8 are replaced."""
    return read(path).decode("utf-8", "replace")


def status(path: str, follow: bool = False) -> t.Optional[os.stat_result]:
    """Return what ``lstat`` says of a path, None when there is nothing.

    Args:
        path: a path on this machine.
        follow: ask what a link leads to; one that leads nowhere is nothing.
    """
    try:
        with place(path, follow) as at:
            return os.stat(at.name, dir_fd=at.folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def there(path: str, follow: bool = True) -> os.stat_result:
    """Return what ``status`` does of a path where there is something.

    Raises:
        FileNotFoundError: there is nothing.
    """
    found = status(path, follow)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found


def is_folder(path: str) -> bool:
    """Tell whether a path leads to a folder."""
    found = status(path, follow=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


def real(path: str) -> str:
    """Return the path of a file or folder without links: what it is called at this moment."""
    descriptor = opened(path)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def names(folder: str, follow: bool = True) -> t.List[str]:
    """Return the names in a folder."""
    descriptor = opened(folder, os.O_RDONLY | os.O_DIRECTORY, follow)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def link_target(path: str) -> str:
    """Return the text of a symbolic link."""
    with place(path) as at:
        return os.readlink(at.name, dir_fd=at.folder)


def set_owner_and_mode(
    path: str, mode: int, owner: t.Optional[t.Tuple[int, int]] = None, follow: bool = True
) -> None:
    """Give a file or folder that is there its owner and permission bits."""
    descriptor = opened(path, follow=follow)
    try:
        give(descriptor, mode, owner)
    finally:
        os.close(descriptor)


def give(descriptor: int, mode: int, owner: t.Optional[t.Tuple[int, int]] = None) -> None:
    """Give an open file or folder its owner and permission bits."""
    found = os.fstat(descriptor)
    if owner is not None and owner != (found.st_uid, found.st_gid):
        os.fchown(descriptor, *owner)
    # After fchown, which clears the set-id bits.
    os.fchmod(descriptor, mode)


def create(path: str) -> int:
    """Create a file (mode 0600) where there is nothing, open for reading and writing."""
    with place(path) as at:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(at.name, flags, 0o600, dir_fd=at.folder)


def lasting(path: str) -> int:
    """Open a file of the engine's own for reading and writing; it is made (mode 0600) where there is none."""
    with place(path) as at:
        if not at.kept:
            raise UnsafePath(path, f"lies {_OTHERS}")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(at.name, flags, 0o600, dir_fd=at.folder)


def make_folder(path: str, mode: int) -> None:
    """Make one folder; the process's umask applies."""
    with place(path) as at:
        os.mkdir(at.name, mode, dir_fd=at.folder)


def make_folders(path: str, mode: int = 0o755) -> None:
    """Make a folder, and those above it that are missing (mode 0755)."""
    if not is_folder(path):
        make_folders(os.path.dirname(path.rstrip("/")))
        with contextlib.suppress(FileExistsError):
            make_folder(path.rstrip("/"), mode)


def make_link(target: str, path: str, owner: t.Optional[t.Tuple[int, int]] = None) -> None:
    """Make a symbolic link where there is nothing."""
    with place(path) as at:
        os.symlink(target, at.name, dir_fd=at.folder)
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            os.chown(at.name, *owner, dir_fd=at.folder, follow_symlinks=False)


def make_hard_link(path: str, new: str) -> None:
    """Give a file a second name; only where nobody else can change either folder.

    Raises:
        OSError: that is not so, or the file system has no hard links.
    """
    with place(path) as at, place(new) as to:
        if not (at.kept and to.kept):
            raise UnsafePath(new, f"would be a hard link {_OTHERS}")
        os.link(at.name, to.name, src_dir_fd=at.folder, dst_dir_fd=to.folder, follow_symlinks=False)


def rename(old: str, new: str) -> None:
    """Rename a file, link or folder; what is called ``new`` is replaced as by ``os.rename``."""
    with place(old) as at, place(new) as to:
        os.rename(at.name, to.name, src_dir_fd=at.folder, dst_dir_fd=to.folder)


def remove(path: str) -> None:
    """Remove a file or link."""
    with place(path) as at:
        os.unlink(at.name, dir_fd=at.folder)


def remove_folder(path: str) -> None:
    """Remove an empty folder."""
    with place(path) as at:
        os.rmdir(at.name, dir_fd=at.folder)


def remove_tree(path: str) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    with place(path) as at:
        _remove_tree(at.folder, at.name)


def _remove_tree(folder: int, name: str) -> None:
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        os.unlink(name, dir_fd=folder)
        return
    try:
        for entry in os.listdir(inner):
            with contextlib.suppress(FileNotFoundError):
                _remove_tree(inner, entry)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


def sync_folder(path: str) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = opened(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
