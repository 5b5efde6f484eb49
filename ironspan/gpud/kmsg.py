# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kernel's log, read from where it was read to.

``/dev/kmsg`` gives one record a read, each with its number; a file (for tests, and hosts whose log a daemon
writes) gives lines, and its position stands for the number.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_RECORD = re.compile(r"\d+,(?P<number>\d+),(?P<time>\d+),[^;]*;(?P<text>.*)")
_LONGEST_RECORD = 8192
_MOST = 1000
"""Lines that are handed over at once."""
_POLL_S = 0.5


class Line(t.NamedTuple):
    """A line of the log.

    Args:
        text: without the kernel's prefix.
        at: seconds since 1970.
    """

    text: str
    at: float


Position = Mapping[str, t.Any]


def booted_at() -> float:
    """Return when the host booted, in seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def read(path: Path, position: Position, ended: Callable[[], bool]) -> Iterator[tuple[list[Line], Position]]:
    """Yield lines as they come, and where the log was read to after them.

    Args:
        path: the log.
        position: where it was read to; empty for its begin.
        ended: asked twice a second whether to end.

    Raises:
        OSError: it cannot be read.
    """
    if stat.S_ISCHR(path.stat().st_mode):
        yield from _device(path, int(position.get("number", -1)), ended)
    else:
        yield from _file(path, position, ended)


def _device(path: Path, number: int, ended: Callable[[], bool]) -> Iterator[tuple[list[Line], Position]]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    started = booted_at()
    try:
        while not ended():
            lines: list[Line] = []
            before = number
            while len(lines) < _MOST:
                try:
                    record = os.read(descriptor, _LONGEST_RECORD)
                except BlockingIOError:
                    break
                except BrokenPipeError:
                    continue  # overwritten before they were read: on with the oldest that is there
                found = _RECORD.match(record.decode("utf-8", "replace"))
                if found is None or int(found["number"]) <= number:
                    continue
                number = int(found["number"])
                # Most records are nobody's business here: only the driver's are handed over.
                if "NVRM" in found["text"] or "nvswitch" in found["text"]:
                    lines.append(Line(found["text"], started + int(found["time"]) / 1e6))
            if lines or (number != before and number - before > _MOST):
                yield lines, {"number": number}
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(2000)
    finally:
        os.close(descriptor)


def _file(path: Path, position: Position, ended: Callable[[], bool]) -> Iterator[tuple[list[Line], Position]]:
    offset, inode = int(position.get("offset", 0)), int(position.get("inode", 0))
    while not ended():
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            now = os.fstat(file.fileno())
            if now.st_ino != inode or now.st_size < offset:
                offset, inode = 0, now.st_ino
            file.seek(offset)
            lines: list[Line] = []
            for content in file:
                if not content.endswith(b"\n") or len(lines) >= _MOST:
                    break  # its end is not written yet
                offset += len(content)
                text = content.decode("utf-8", "replace").rstrip("\n")
                found = _RECORD.match(text)
                lines.append(Line(found["text"] if found else text, time.time()))
            if lines:
                yield lines, {"offset": offset, "inode": inode}
                continue
        time.sleep(_POLL_S)
