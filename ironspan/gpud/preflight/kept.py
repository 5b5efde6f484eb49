# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is remembered of preflights: the last verdict and attempt; and that there is one at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import random
import time
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.program.errors import Refused

LOG = logging.getLogger(__name__)
RUNNING, DONE, STOPPED = "running", "done", "yielded"
VERSION = 1
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last time that a preflight was begun.

    Args:
        how: ``running``, ``done`` or ``yielded``. One that says ``running`` and has no process was killed.
        boot: which boot it was in.
        started, ended: seconds since 1970.
        why: it was ended.
        unfinished: how many, this one included, came to no verdict in this boot.
    """

    how: str = ""
    boot: str = ""
    started: float = 0.0
    ended: float = 0.0
    why: str = ""
    unfinished: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered.

    Args:
        attempt: the last one.
        verdict: the annotation of the last that was finished, empty for none.
        condition: status, reason and message of it.
    """

    attempt: Attempt = field(default_factory=Attempt)
    verdict: Mapping[str, t.Any] = field(default_factory=dict)
    condition: tuple[str, str, str] = ("", "", "")


def path(folder: Path) -> Path:
    """Return the file."""
    return folder / "preflight.json"


def read(folder: Path) -> Kept:
    """Return what is remembered; nothing where the file cannot be used, which is told."""
    try:
        with path(folder).open("rb") as file:
            data = json.loads(file.read(_LONGEST))
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']} is not known")
        status, reason, message = map(str, data["condition"])
        return Kept(Attempt(**data["attempt"]), dict(data["verdict"]), (status, reason, message))
    except FileNotFoundError:
        return Kept()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        LOG.warning("%s cannot be used, the last preflight is forgotten: %s", path(folder), error)
        return Kept()


def write(folder: Path, kept: Kept) -> None:
    """Replace what is remembered, as a whole.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps({"version": VERSION, **asdict(kept)}, separators=(",", ":"))
    write_file(path(folder), text.encode(), 0o600)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Be the only preflight of this host while the block runs; gives whether it is.

    Raises:
        OSError: the folder cannot be written to.
    """
    descriptor = os.open(folder / "preflight.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Take the lock; False when a preflight has it. Who only looks (``runs``) shares it for a moment."""
    while True:
        for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if how == fcntl.LOCK_SH:
                    return False
            else:
                if how == fcntl.LOCK_EX:
                    return True
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(random.uniform(0.01, 0.05))


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make the folder, and be the only preflight of this host while the block runs.

    Raises:
        Refused: another one runs, or the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder) as is_alone:
            if not is_alone:
                raise Refused("A preflight runs on this host already.", "Wait until it has ended.")
            yield
    except OSError as error:
        raise Refused(
            f"{folder} cannot be used: {error}.", "Run it as root, or name another folder."
        ) from error


def runs(folder: Path) -> bool:
    """Say whether a preflight runs now; it changes nothing."""
    try:
        descriptor = os.open(folder / "preflight.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def standing(folder: Path) -> tuple[Kept, bool]:
    """Return what is remembered, and whether what it says is running does: both of one moment.

    One that ends writes first and then lets go of its lock, so what was read before the lock was looked at
    may be from before its end.
    """
    found = read(folder)
    while True:
        # A test with another node holds the lock too, and is not what is remembered.
        running = found.attempt.how == RUNNING and runs(folder)
        again = read(folder)
        if again == found:
            return found, running
        found = again


def begun(kept: Kept, boot: str, now: float) -> Kept:
    """Return what is remembered when one begins."""
    before = kept.attempt
    unfinished = before.unfinished if before.boot == boot else 0
    return replace(kept, attempt=Attempt(RUNNING, boot, now, unfinished=unfinished + 1))
