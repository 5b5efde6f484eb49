# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The cache folder: where things lie, locks between runs, atomic writes, digests.

::

    $XDG_CACHE_HOME/ironspan/
      mirror/                what nginx serves, and index.json
      build/COMPONENT/RECIPE/  programs that were compiled, each with its digest beside it
      base/                  base layers of images
      locks/                 one lock file a step; a run that finds it held waits for the other run
      tmp/STEP/              what a step has half done; owned by whoever holds the step's lock
"""

from __future__ import annotations

import collections.abc
import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import threading
import typing as t

CHUNK = 1 << 20
"""Bytes read at a time: large enough that hashing, not system calls, costs the time."""
POLL_S = 0.1
"""Seconds between two tries for a lock that another run holds."""


class Cache:
    """One cache folder; any number of processes and threads may use it at once.

    Args:
        root: the folder; None for ``$XDG_CACHE_HOME/ironspan`` (``~/.cache/ironspan``).
    """

    def __init__(self, root: pathlib.Path | None = None) -> None:
        self.root = root if root is not None else default_root()
        self.stopping = threading.Event()
        """Set when the run shall end: who waits for a lock then gives up."""

    @property
    def mirror(self) -> pathlib.Path:
        """Return the folder that nginx serves."""
        return self.root / "mirror"

    @property
    def index_path(self) -> pathlib.Path:
        """Return where the mirror's index lies."""
        return self.mirror / "index.json"

    def built(self, component: str, recipe: str) -> pathlib.Path:
        """Return the folder of a component's compiled programs."""
        return self.root / "build" / component / recipe

    def below_mirror(self, path: str) -> pathlib.Path:
        """Return the file that a mirror path (it begins with a slash) stands for."""
        return self.mirror / path.lstrip("/")

    @contextlib.contextmanager
    def locked(
        self, step: str, waiting: collections.abc.Callable[[], None] | None = None
    ) -> collections.abc.Iterator[pathlib.Path]:
        """Hold the lock of a step, between threads and between processes.

        The kernel drops the lock when its holder dies, so a killed run never blocks the next one.

        Args:
            step: the step's name; any text.
            waiting: called once when somebody else holds the lock, before waiting for it.

        Yields:
            The step's folder for half-done work. It may hold what a killed run left there.
        """
        name = re.sub(r"[^A-Za-z0-9._-]", "_", step)
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting is not None:
                    waiting()
                self._wait_for(handle)
            scratch = self.root / "tmp" / name
            scratch.mkdir(parents=True, exist_ok=True)
            yield scratch

    def _wait_for(self, handle: t.IO[str]) -> None:
        # Asked again and again rather than waited for in the kernel: Ctrl-C must end a thread that waits.
        while not self.stopping.wait(POLL_S):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        raise KeyboardInterrupt

    def discard(self, scratch: pathlib.Path) -> None:
        """Empty a step's folder for half-done work."""
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True, exist_ok=True)


def default_root() -> pathlib.Path:
    """Return ``$XDG_CACHE_HOME/ironspan``, or ``~/.cache/ironspan``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The base directory specification says that a relative path is to be ignored.
    folder = pathlib.Path(base) if base.startswith("/") else pathlib.Path.home() / ".cache"
    return folder / "ironspan"


def digest_of(path: pathlib.Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file as ``sha256:HEX`` (or ``sha512:HEX``)."""
    with path.open("rb") as handle:
        return f"{algorithm}:{hashlib.file_digest(handle, algorithm).hexdigest()}"


def has_digest(path: pathlib.Path, digest: str) -> bool:
    """Say whether the file is there and has this digest."""
    try:
        return digest_of(path, digest.partition(":")[0]) == digest
    except FileNotFoundError:
        return False


def publish(source: pathlib.Path, target: pathlib.Path) -> None:
    """Move a finished file to its place so that readers see either the old one or the whole new one.

    Args:
        source: a file on the same file system; its data is brought to disk first.
        target: where it belongs; folders are made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as handle:
        os.fsync(handle.fileno())
    source.replace(target)
    _sync_folder(target.parent)


def publish_text(text: str, target: pathlib.Path, scratch: pathlib.Path) -> None:
    """Publish a small text; a run that is killed leaves nothing beside it, as a step's folder is emptied.

    Args:
        text: what the file shall hold.
        target: where it belongs.
        scratch: the step's folder, on the same file system.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    made = scratch / f"text-{target.name}"
    made.write_text(text, encoding="utf-8")
    publish(made, target)


def link_or_copy(source: pathlib.Path, target: pathlib.Path, scratch: pathlib.Path) -> None:
    """Give a file a second name, or where the file system cannot, copy it; the target appears whole."""
    temporary = scratch / f"link-{target.name[-40:]}"
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copy2(source, temporary)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(target)
    # When both names are already the same file, rename does nothing and leaves the temporary name.
    temporary.unlink(missing_ok=True)


def readable_size(count: float) -> str:
    """Return a number of bytes for people, in decimal units: 12.3 MB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _sync_folder(folder: pathlib.Path) -> None:
    handle: t.Final = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
