# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``hosts_entries``: a marked block of names in /etc/hosts; every other byte stays as it is."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

PATH = "/etc/hosts"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\Z")


class HostsEntriesKind:
    """Keeps its block at its place, or appends it."""

    name = "hosts_entries"
    fields: t.Mapping[str, Field] = {"entries": Field((list,), required=True)}

    def check(self, spec: Spec) -> t.List[str]:
        """Each entry is an address and at least one name."""
        mistakes = []
        for number, entry in enumerate(spec["entries"]):
            where = f"entries[{number}]"
            if not isinstance(entry, dict) or set(entry) != {"address", "names"}:
                mistakes.append(f"{where} must be a mapping of address and names, found {entry!r}")
            elif not _is_address(entry["address"]):
                mistakes.append(f"{where}.address is no IP address: {entry['address']!r}")
            elif not isinstance(entry["names"], list) or not entry["names"]:
                mistakes.append(f"{where}.names must be a list of names, found {entry['names']!r}")
            else:
                bad = [name for name in entry["names"] if not isinstance(name, str) or not _NAME.match(name)]
                mistakes.extend(f"{where}.names has no host name: {name!r}" for name in bad)
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare the file with itself with the block put right."""
        data = _read(host)
        wanted = with_block(data or b"", spec["id"], block(spec))
        if data == wanted or (data is None and not wanted):
            return None
        before = {"state": "absent"} if data is None else _shown(data)
        after = _shown(wanted)
        return Change("update" if data is not None else "create", before, after, "entries differ")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the file again with the block put right; its owner and mode stay."""
        real = host.path(PATH)
        host.backup(PATH)
        wanted = with_block(_read(host) or b"", spec["id"], block(spec))
        try:
            status = paths.there(real)
            real = paths.real(real)
            owner: t.Optional[files.Ownership] = (status.st_uid, status.st_gid)
            mode = stat.S_IMODE(status.st_mode)
        except FileNotFoundError:
            owner, mode = None, 0o644
        try:
            files.write_atomically(real, wanted, mode, owner)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EXDEV):
                raise
            # Containers may have /etc/hosts mounted as a single file, which cannot be replaced by a rename.
            descriptor = paths.opened(real, os.O_WRONLY)
            try:
                files.write_all(descriptor, wanted)
                os.ftruncate(descriptor, len(wanted))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Take the block out; the file stays."""
        return [{"kind": self.name, "id": spec["id"], "entries": []}]


def block(spec: Spec) -> bytes:
    """Return the lines of the block, without its marks; empty if there are no entries."""
    return "".join(f"{entry['address']} {' '.join(entry['names'])}\n" for entry in spec["entries"]).encode(
        "ascii"
    )


def with_block(data: bytes, name: str, lines: bytes) -> bytes:
    """Return a file's content with a marked block in it, or without it when the block is empty.

    Args:
        data: the present content; bytes outside the block are returned as they are.
        name: tells this block from others.
        lines: what the block shall hold, ending in a newline, or nothing.

    Raises:
        ResourceError: a mark is without its counterpart, so nobody can tell where the block ends.
    """
    begin, end = f"# BEGIN ironspan {name}\n".encode(), f"# END ironspan {name}\n".encode()
    new = begin + lines + end if lines else b""
    pieces = data.splitlines(keepends=True)
    # The end mark may be the last line, and somebody's editor may have dropped the newline.
    marks = [(i, piece.rstrip(b"\r\n") + b"\n") for i, piece in enumerate(pieces)]
    begins = [i for i, piece in marks if piece == begin]
    ends = [i for i, piece in marks if piece == end]
    if not begins and not ends:
        if not new:
            return data
        return data + (b"" if data.endswith(b"\n") or not data else b"\n") + new
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        raise ResourceError(
            f"the marks '{begin.decode().strip()}' and '{end.decode().strip()}' in {PATH} do not pair",
            f"Remove the marks and the lines between them from {PATH} by hand.",
        )
    return b"".join(pieces[: begins[0]]) + new + b"".join(pieces[ends[0] + 1 :])


def _shown(data: bytes) -> State:
    return {"text": data.decode("utf-8", "replace"), "sha256": hashlib.sha256(data).hexdigest()}


def _read(host: Host) -> t.Optional[bytes]:
    try:
        return paths.read(host.path(PATH))
    except FileNotFoundError:
        return None


def _is_address(text: t.Any) -> bool:
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
            return True
        except (OSError, TypeError, ValueError):
            continue
    return False


KIND = HostsEntriesKind()
