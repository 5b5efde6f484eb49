# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the commands show while they work.

Every part of ironspan reports progress through one call, ``step(name, state, detail)``. Three displays
understand it: a live one on a terminal (running steps with their elapsed time at the bottom, finished ones
above), plain lines where there is no terminal, and one JSON object a line for machines.
"""

from __future__ import annotations

import argparse
import collections.abc
import json
import sys
import threading
import time
import types
import typing as t

if t.TYPE_CHECKING:
    from ironspan.cli.live import Live, Row

Mode = t.Literal["live", "plain", "json"]
State = t.Literal["start", "done", "skip", "fail"]
Progress = collections.abc.Callable[[str, str, str], None]
"""What parts that do long work accept: (what, state, detail); state is start, done, skip or fail."""

WORDS = {"start": "...", "done": "ok", "skip": "skip", "fail": "FAIL"}
FLICKER_S = 0.3
"""A step shorter than this leaves its ``start`` line out of the plain display (nobody can act on it)."""


def quiet(name: str, state: str, detail: str) -> None:
    """Accept progress and show nothing: the default of library calls."""


class Console:
    """A thread-safe progress display; use it as a context manager so that the terminal is left clean.

    Args:
        mode: live, plain or json.
        stream: where to write; standard output by default.
        clock: seconds, monotonic; tests hand in their own.
    """

    def __init__(
        self,
        mode: Mode = "plain",
        stream: t.TextIO | None = None,
        clock: collections.abc.Callable[[], float] = time.monotonic,
    ) -> None:
        self.mode = mode
        self.stream = stream if stream is not None else sys.stdout
        self._clock = clock
        self._begun = clock()
        self._running: dict[str, tuple[float, str]] = {}
        self._lock = threading.RLock()
        self._live: Live | None = None
        if mode == "live":
            from ironspan.cli.live import Live

            self._live = Live(self.stream, self._rows)

    def __enter__(self) -> Console:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        self.stream.flush()

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Report that a piece of work started or ended.

        Args:
            name: what is worked on; the same words at start and end.
            state: start, done, skip or fail; ``start`` again updates the detail of running work.
            detail: a few words more, for example a size or a reason.
        """
        with self._lock:
            now = self._clock()
            known = self._running.get(name)
            took = now - known[0] if known else 0.0
            if state == "start":
                self._running[name] = (known[0] if known else now, detail)
                if known and self.mode == "plain":
                    return
            else:
                self._running.pop(name, None)
            if self.mode == "json":
                self.event("step", name=name, state=state, detail=detail, seconds=round(took, 3))
            elif self._live is None:
                self._line(f"{WORDS.get(state, state):<5}{name}", detail, took)
            elif state != "start":
                self._live.ended(name, state, detail, f"{took:.1f} s" if took >= FLICKER_S else "")

    def drop(self, name: str) -> None:
        """Forget running work without a word: it turned out that there was nothing to do."""
        with self._lock:
            self._running.pop(name, None)

    def phase(self, name: str) -> None:
        """Announce that a new phase begins; the steps after it belong to it."""
        with self._lock:
            if self.mode == "json":
                self.event("phase", name=name)
            elif self._live is None:
                self._line(f"== {name}", "", 0.0)
            else:
                self._live.phase(name)

    def note(self, text: str) -> None:
        """Show a line of text (in JSON mode an event of type ``note``)."""
        with self._lock:
            if self.mode == "json":
                self.event("note", text=text)
            elif self._live is None:
                print(text, file=self.stream, flush=True)
            else:
                self._live.note(text)

    def event(self, kind: str, /, **fields: t.Any) -> None:
        """Write one JSON line; nothing in the other modes."""
        if self.mode == "json":
            line = {"time": round(time.time(), 3), "event": kind, **fields}
            with self._lock:
                print(json.dumps(line, ensure_ascii=False, default=str), file=self.stream, flush=True)

    def _line(self, text: str, detail: str, took: float) -> None:
        spent = f" ({took:.1f} s)" if took >= FLICKER_S else ""
        tail = f": {detail}" if detail else ""
        elapsed = self._clock() - self._begun
        print(f"[{elapsed:7.1f}s] {text}{tail}{spent}", file=self.stream, flush=True)

    def _rows(self) -> list[Row]:
        """Return what is worked on now, the newest 20."""
        with self._lock:
            now = self._clock()
            return [
                (name, detail, now - since) for name, (since, detail) in list(self._running.items())[-20:]
            ]


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options that choose its display, unless it has options of these names already."""
    for flag, text in (
        ("--json", "write one JSON object a line"),
        ("--plain", "write plain lines even on a terminal"),
    ):
        if flag not in parser._option_string_actions:
            # Without a default of its own, a subcommand does not take back what was said before its name.
            parser.add_argument(flag, action="store_true", default=argparse.SUPPRESS, help=text)


def from_arguments(arguments: argparse.Namespace, stream: t.TextIO | None = None) -> Console:
    """Return the console that the command line asks for: ``--json``, ``--plain``, else what the stream is."""
    chosen = stream if stream is not None else sys.stdout
    mode: Mode = "live" if chosen.isatty() else "plain"
    if getattr(arguments, "plain", False):
        mode = "plain"
    if getattr(arguments, "json", False):
        mode = "json"
    return Console(mode, chosen)
