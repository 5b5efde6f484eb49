# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes the steps of many things: some at the same time, and one that fails ends no other."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Kind, Thing

QUIET_S = 2.0
"""What takes no longer than this is not talked about while it goes on."""
_NAMED = 3
Say = Callable[[str], None]


class Outcome(t.NamedTuple):
    """What became of a thing."""

    name: str
    done: list[str]
    """Its steps that were taken, in order."""
    error: str = ""
    seconds: tuple[float, ...] = ()
    """How long each step took, also the one that failed."""

    @property
    def problem(self) -> str:
        """Return which thing, what went wrong and what was done before, empty when nothing went wrong."""
        if not self.error:
            return ""
        # A service that is spoken to directly has its errors begin so already.
        named = "" if self.error.startswith(f"{self.name}:") else f"{self.name}: "
        return f"{named}{self.error}; done before: {', '.join(self.done) or 'nothing'}"


def apply(
    kind: Kind,
    things: Sequence[Thing],
    say: Say,
    begin: Callable[[Thing], None] = lambda thing: None,
    quiet_s: float = QUIET_S,
) -> list[Outcome]:
    """Take the steps of all things of a kind.

    Args:
        kind: opened.
        things: with their steps; those without any are left alone.
        say: told how it goes, every few seconds.
        begin: told of each thing before its first step, so that a killed run is known.
        quiet_s: seconds between two reports, and before the first.

    Returns:
        What became of each thing that has steps, in their order.
    """
    busy = [thing for thing in things if thing.steps]
    progress = _Progress(kind.name, len(busy))
    lanes: dict[str, list[Thing]] = {}
    for thing in busy:
        lanes.setdefault(kind.lane(thing.name, thing.wanted), []).append(thing)
    outcomes: dict[str, Outcome] = {}
    budgets = {lane: _Budget(lane, kind.most_failures) for lane in lanes}
    with progress.told(say, quiet_s), contextlib.ExitStack() as stack:
        waiting = {}
        for name, lane in lanes.items():
            width = max(1, min(kind.at_once, len(lane)))
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(width))
            work = functools.partial(_within, budgets[name], kind, progress, begin)
            waiting.update({pool.submit(work, thing): thing for thing in lane})
        for future in concurrent.futures.as_completed(waiting):
            outcomes[waiting[future].name] = future.result()
    return [outcomes[thing.name] for thing in busy]


class _Budget:
    """How many things of a lane may fail before the others are not begun any more.

    Args:
        lane: what they share.
        most: how many; 0 for any number.
    """

    def __init__(self, lane: str, most: int) -> None:
        self._lane, self._most = lane, most
        self._failed = 0
        self._lock = threading.Lock()

    def spent(self) -> str:
        """Return why nothing more is begun, "" when it is."""
        if not self._most or self._failed < self._most:
            return ""
        where = f" of {self._lane}" if self._lane else ""
        return f"not begun, because {self._failed}{where} failed before; look at those, and run it again"

    def count(self, outcome: Outcome) -> None:
        """Count what became of one."""
        with self._lock:
            self._failed += bool(outcome.error)


def _within(
    budget: _Budget, kind: Kind, progress: _Progress, begin: Callable[[Thing], None], thing: Thing
) -> Outcome:
    if reason := budget.spent():
        progress.finished(thing.name)
        return Outcome(thing.name, [], reason)
    outcome = _work(kind, thing, progress, begin)
    budget.count(outcome)
    return outcome


def _work(kind: Kind, thing: Thing, progress: _Progress, begin: Callable[[Thing], None]) -> Outcome:
    done: list[str] = []
    seconds: list[float] = []
    error = ""
    try:
        begin(thing)
        for step in thing.steps:
            begun = time.monotonic()
            try:
                with progress.at(thing.name, step.what) as say:
                    kind.do(thing.name, step, thing.wanted, thing.found.state, say)
            finally:
                seconds.append(time.monotonic() - begun)
            done.append(step.what)
    except ActionableError as problem:
        error = str(problem)
    except Exception as problem:  # a mistake in a kind ends one thing, never the others
        error = f"{type(problem).__name__} while it was worked on; this is a mistake"
    finally:
        progress.finished(thing.name)
    return Outcome(thing.name, done, error, tuple(seconds))


class _Progress:
    """What goes on, from many threads."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind = kind
        self._count = count
        self._lock = threading.Lock()
        self._done = 0
        self._at: dict[str, tuple[float, str]] = {}

    @contextlib.contextmanager
    def at(self, name: str, what: str) -> Iterator[Say]:
        begun = time.monotonic()

        def say(text: str) -> None:
            with self._lock:
                self._at[name] = (begun, f"{what}: {text}" if text else what)

        say("")
        yield say

    def finished(self, name: str) -> None:
        with self._lock:
            self._at.pop(name, None)
            self._done += 1

    @contextlib.contextmanager
    def told(self, say: Say, quiet_s: float) -> Iterator[None]:
        """Tell how it goes as long as it goes on."""
        over = threading.Event()

        def tell() -> None:
            while not over.wait(quiet_s):
                say(self.text())

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()

    def text(self) -> str:
        """Return how many are done, and those that have been at a step for longest."""
        with self._lock:
            at, done = sorted((begun, name, what) for name, (begun, what) in self._at.items()), self._done
        now = time.monotonic()
        longest = "; ".join(f"{name}: {what} ({now - begun:.0f} s)" for begun, name, what in at[:_NAMED])
        more = f"; {len(at) - _NAMED} more" if len(at) > _NAMED else ""
        return f"{self._kind}: {done} of {self._count} done{f'; {longest}{more}' if longest else ''}"
