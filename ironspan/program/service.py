# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A program that repeats steps, tells how it goes, and ends when it is told to.

This is the whole main loop of one: ``serve(metrics, listen, Step("pass", one_pass, 10, 60))``.
"""

from __future__ import annotations

import contextlib
import logging
import typing as t
from collections.abc import Callable, Iterator

from ironspan.program import process
from ironspan.program.errors import LeaseLost
from ironspan.program.lasting import Lasting
from ironspan.program.leader import Keeper, Leadership
from ironspan.program.listen import Listen
from ironspan.program.loop import Repeating
from ironspan.program.metrics import Metrics

LOG = logging.getLogger(__name__)


class Step(t.NamedTuple):
    """What a program does again and again.

    Args:
        name: for messages and metrics.
        run: does it once.
        pause: seconds between the end of one run and the next; longer while it fails.
        deadline: seconds since it was last done with success after which the program is not ready.
    """

    name: str
    run: Callable[[], object]
    pause: float
    deadline: float


@contextlib.contextmanager
def repeating(metrics: Metrics, *steps: Step) -> Iterator[list[Repeating]]:
    """Repeat steps, each in a thread of its own, while the block runs.

    Args:
        metrics: count failures, and ask for the steps while they are repeated.
        steps: what to repeat.
    """
    threads = [Repeating(step.name, step.run, step.pause, metrics.failed) for step in steps]
    for step, thread in zip(steps, threads, strict=True):
        metrics.watch(step.name, thread.since_success, step.deadline)
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.end()
        for step, thread in zip(steps, threads, strict=True):
            thread.stop()
            metrics.forget(step.name)


def serve(metrics: Metrics, at: Listen, *steps: Step, leadership: Leadership | None = None) -> int:
    """Repeat steps until SIGTERM or SIGINT; for the main thread.

    Args:
        metrics: of the program.
        at: where they are served.
        steps: what to repeat.
        leadership: where several of these programs run and one acts. A step of one that does not lead does
            nothing, so a standby is ready. A step asks ``leadership.held()`` again before each change.

    Returns:
        The exit code, 0.

    Raises:
        ProgramError: the metrics' address cannot be listened on.
    """
    ending = process.ending()
    with contextlib.ExitStack() as stack:
        stack.enter_context(metrics.serving(at))
        if leadership is not None:
            metrics.gauge("leader", "1 while this program is the one that acts.").set_function(
                lambda: float(leadership.held())
            )
            stack.enter_context(Keeper(leadership, teller(leadership, metrics)))
            steps = tuple(step._replace(run=_while_held(leadership, step.run)) for step in steps)
        stack.enter_context(repeating(metrics, *steps))
        ending.wait()
    return 0


def teller(leadership: Leadership, metrics: Metrics) -> Callable[[], None]:
    """Return what counts and tells, after each step of a leadership, why the lease is not to be had."""
    lasting = Lasting(LOG)

    def tell() -> None:
        problem = leadership.problem
        if isinstance(problem, LeaseLost):
            problem = None
        if problem is not None:
            metrics.failed(problem)
        lasting.tell(problem)

    return tell


def _while_held(leadership: Leadership, run: Callable[[], object]) -> Callable[[], object]:
    return lambda: run() if leadership.held() else None
