# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small fuzzer that keeps what reaches new lines: for everything that reads bytes which others wrote.

Inputs are changed copies of good ones. Which lines of the code under test an input reached comes from
``sys.monitoring``: each line is reported once and then left alone, so watching costs next to nothing. An
input that reached a line for the first time joins those that are changed further.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import random
import re
import resource
import signal
import sys
import time
import traceback
import types
import typing as t
from pathlib import Path

TOOL = 4
"""Of the six tool numbers of ``sys.monitoring`` one that no debugger, profiler or coverage tool takes."""
HANG_CPU_S = 5.0
"""Processor seconds for one input; a good one takes a few milliseconds."""
LARGEST = 256 * 1024
"""Bytes of an input."""
MEMORY_KIB = 768 * 1024
"""By how much the process may grow in one run."""
_INTEGERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_TOKENS = (
    b"null", b"true", b"[]", b"{}", b'""', b"-1", b"1e999", b"NaN", b"1.5", b"9" * 40, b"\x00", b"\n", b'"',
    b"\\ud800", b"../", b"/etc/passwd", b"\xff\xfe", b"<b>", "\u0665".encode(), "\U0001f600".encode(),
    b"[" * 100_000, b'{"a":' * 40_000,
)  # fmt: skip
_NUMBER = re.compile(rb"\d+")


@dataclasses.dataclass(frozen=True)
class Target:
    """One reader of foreign bytes.

    Args:
        name: what the findings are filed under.
        read: takes the bytes; whatever it returns is right.
        samples: good inputs, each of which ``read`` takes.
        refusals: the errors that ``read`` promises for bad input.
        watched: parts of the paths of the files whose lines count.
    """

    name: str
    read: collections.abc.Callable[[bytes], object]
    samples: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...]
    watched: tuple[str, ...]


class Finding(t.NamedTuple):
    """An input that the reader did not take as it promises, and what it did."""

    data: bytes
    what: str


class Hang(BaseException):
    """One input took too much processor time; no reader's own ``except Exception`` swallows it."""


@contextlib.contextmanager
def _limited(seconds: float) -> collections.abc.Iterator[None]:
    def late(*_: object) -> None:
        raise Hang

    former = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)


def judge(target: Target, data: bytes) -> str:
    """Return what is wrong with how a target reads these bytes, an empty text when nothing is."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _limited(HANG_CPU_S):
            target.read(data)
    except target.refusals:
        pass
    except Hang:
        return f"it takes more than {HANG_CPU_S:g} s of processor time"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"it takes {grown // 1024} MiB of memory" if grown > MEMORY_KIB else ""


class _Lines:
    """Tells whether the watched code has run a line that it had not run before."""

    def __init__(self, watched: tuple[str, ...]) -> None:
        self._watched = watched
        self.new = False
        self.reached = 0

    def __enter__(self) -> t.Self:
        monitoring = sys.monitoring
        monitoring.use_tool_id(TOOL, "ironspan-fuzzing")
        monitoring.restart_events()
        monitoring.register_callback(TOOL, monitoring.events.LINE, self._line)
        monitoring.set_events(TOOL, monitoring.events.LINE)
        return self

    def __exit__(self, *_: object) -> None:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, None)
        sys.monitoring.free_tool_id(TOOL)

    def _line(self, code: types.CodeType, line: int) -> object:
        if any(part in code.co_filename for part in self._watched):
            self.new = True
            self.reached += 1
        return sys.monitoring.DISABLE


def change(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Return a changed copy of an input.

    Args:
        data: the input.
        other: another one, to take pieces from.
        draw: decides what changes.
    """
    changed = bytearray(data)
    for _ in range(1 << draw.randrange(4)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(9):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << draw.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
            case 2:
                del changed[at : at + draw.choice((1, 2, 4, 16, len(changed)))]
            case 3:
                start = draw.randrange(len(other) + 1)
                changed[at:at] = other[start : start + draw.choice((1, 4, 16, 64, len(other)))]
            case 4:
                size = draw.choice((1, 2, 4, 8))
                number = draw.choice(_INTEGERS) & ((1 << 8 * size) - 1)
                changed[at : at + size] = number.to_bytes(size, draw.choice(("big", "little")))
            case 5:
                changed[at:at] = draw.choice(_TOKENS)
            case 6 if numbers := [*_NUMBER.finditer(changed)]:
                number_at = draw.choice(numbers)
                changed[slice(*number_at.span())] = str(draw.choice(_INTEGERS)).encode()
            case 7:
                piece = changed[at : at + draw.choice((1, 8, 64, 512))]
                changed[at:at] = piece * draw.choice((1, 2, 100))
            case 8:
                length = draw.choice((1, 4, 16))
                changed[at : at + length] = draw.randbytes(length)
        if len(changed) > LARGEST:
            del changed[LARGEST:]
    return bytes(changed)


def fuzz(target: Target, seed: int, inputs: int, cpu_seconds: float = float("inf")) -> list[Finding]:
    """Try changed inputs and return what was found, one finding for each way of going wrong.

    Args:
        target: what reads them.
        seed: the same seed tries the same inputs.
        inputs: how many at most.
        cpu_seconds: processor time at most.
    """
    draw = random.Random(f"{target.name} {seed}")
    known = list(target.samples)
    found: dict[str, Finding] = {}
    began = time.process_time()
    newest = 0.0
    with _Lines(target.watched) as lines:
        for sample in target.samples:
            if wrong := judge(target, sample):
                found[wrong] = Finding(sample, f"a good input: {wrong}")
        tried = 0
        while tried < inputs:
            tried += 1
            if time.process_time() - began > cpu_seconds:
                break
            data = change(draw.choice(known), draw.choice(known), draw)
            lines.new = False
            wrong = judge(target, data)
            if wrong:
                found.setdefault(wrong.split(":")[0] + wrong[wrong.rfind("(") :], Finding(data, wrong))
            if lines.new:
                known.append(data)
                newest = time.process_time() - began
    print(
        f"{target.name}: {tried:,} inputs in {time.process_time() - began:.0f} s, {len(known):,} kept, "
        f"the last line not reached before after {newest:.1f} s, {len(found)} findings"
    )
    return list(found.values())
