# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reading tar archives with distrust: plain files, folders and inner links only, never outside the folder."""

from __future__ import annotations

import gzip
import posixpath
import tarfile
import typing as t
import zlib

from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

UNREADABLE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
"""What reading raises where the bytes are no archive, or a damaged one."""


class Member(t.NamedTuple):
    """One entry to be unpacked: its path below the destination, and a link's target ("" for a file)."""

    path: str
    info: tarfile.TarInfo
    target: str


def select(archive: tarfile.TarFile, strip: int, wanted: t.Sequence[str]) -> t.List[Member]:
    """List what to unpack from an archive.

    Args:
        archive: open for reading.
        strip: how many leading parts of each name to drop; shorter names are left out.
        wanted: names after stripping to take; empty takes all.

    Raises:
        ResourceError: an entry that would leave the folder, is neither file, folder nor link, a hard link to
            what is not there, or a wanted name that is missing. The whole archive is refused then.
    """
    members: t.Dict[str, Member] = {}
    before: t.Set[str] = set()
    for info in archive:
        name = _name(info.name)
        if info.islnk() and posixpath.normpath(info.linkname) not in before:
            raise _refused(
                info.name, f"is a hard link to {info.linkname!r}, and no file before it is called so"
            )
        if info.isreg() or info.islnk():
            before.add(posixpath.normpath(info.name))
        parts = name.split("/") if name else []
        if len(parts) <= strip:
            continue
        path = "/".join(parts[strip:])
        if wanted and path not in wanted:
            continue
        if info.isdir():
            continue
        if info.issym():
            members[path] = Member(path, info, _target(path, info.linkname))
        elif info.isreg() or info.islnk():
            members[path] = Member(path, info, "")
        else:
            raise _refused(info.name, "is a device or pipe")
    missing = [name for name in wanted if name not in members]
    if missing:
        raise ResourceError(
            f"the archive has no {', '.join(missing)}",
            "Check strip and members against the archive's listing.",
        )
    return list(members.values())


def _name(name: str) -> str:
    if name.startswith("/"):
        raise _refused(name, "has an absolute name")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(name, "points out of its folder")
    return "/".join(parts)


def _target(path: str, target: str) -> str:
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or reached == ".." or reached.startswith("../"):
        raise _refused(path, f"is a link out of its folder, to {target}")
    return target


def _refused(name: str, why: str) -> ResourceError:
    return ResourceError(f"the archive's entry {name!r} {why}", "Use an archive from a source you trust.")
