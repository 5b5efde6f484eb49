# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The file with the public keys of hosts, as ssh(1) reads it: what is in it was never learnt from a login."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import typing as t
from collections.abc import Iterable, Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError


class Entry(t.NamedTuple):
    """A host and its keys.

    Args:
        address: of the host.
        name: of the host.
        keys: each a type and the key in base64.
        identity: what no other host ever has, also one of the same name; "" where nothing tells.
    """

    address: str
    name: str
    keys: tuple[str, ...]
    identity: str = ""


class KnownHostsFile:
    """The file.

    Args:
        path: of it; "" for none.
        variable: which names it, for messages.
    """

    def __init__(self, path: str, variable: str) -> None:
        self._path = Path(path).expanduser().absolute() if path else None
        self._variable = variable
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """Return what is recorded, each line by itself; nothing where there is no file.

        Raises:
            RemoteError: no file is named.
        """
        return [entry for line in _lines(self._file()) if (entry := _parsed(line))]

    def record(self, recorded: Iterable[Entry], gone: Iterable[str] = ()) -> None:
        """Record hosts in the place of what had their names and addresses; on disk when this returns.

        Args:
            recorded: hosts.
            gone: identities of hosts that are no more; their lines go.

        Raises:
            RemoteError: no file is named.
        """
        path, recorded, left = self._file(), list(recorded), set(gone)
        replaced = {text for entry in recorded for text in (entry.address, entry.name)}
        with self._locked(path):
            kept = [
                line
                for line in _lines(path)
                if not replaced & {*line.partition(" ")[0].split(",")}
                and not ((entry := _parsed(line)) and entry.identity and entry.identity in left)
            ]
            made = [
                f"{entry.address},{entry.name} {key} {entry.identity}".rstrip()
                for entry in recorded
                for key in entry.keys
            ]
            write_file(path, "".join(f"{line}\n" for line in (*kept, *made)).encode(), 0o644)

    def _file(self) -> Path:
        if self._path is None:
            raise RemoteError("no file for the keys of hosts is named", f"write {self._variable}")
        return self._path

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Keep other threads and other runs away: each writes the whole file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _parsed(line: str) -> Entry | None:
    """Return the entry of a line, None for one that people wrote in another form."""
    parts = line.split()
    if line.startswith(("#", "@", "|")) or len(parts) < 3:
        return None
    names = parts[0].split(",")
    return Entry(names[0], names[-1], (f"{parts[1]} {parts[2]}",), " ".join(parts[3:]))
