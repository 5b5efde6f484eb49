# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Workers end with the run that they belong to, however it ended."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import end_with_the_run

FORK = multiprocessing.get_context("fork")
PATIENCE_S = 30


def work(ready: int, bound: bool) -> None:
    """Be a worker in a session of its own, as Ansible's are."""
    os.setsid()
    if bound:
        end_with_the_run()
    os.write(ready, b"%d\n" % os.getpid())
    signal.pause()


def play(ready: int, bound: bool) -> None:
    """Be a run with one worker."""
    FORK.Process(target=work, args=(ready, bound)).start()
    signal.pause()


def ended_after_its_run(bound: bool) -> bool:
    """Kill a run; tell whether its worker has ended too. It is the last to hold the pipe."""
    heard, ready = os.pipe()
    run = FORK.Process(target=play, args=(ready, bound))
    run.start()
    os.close(ready)
    worker = int(os.read(heard, 20))
    run.kill()
    run.join()
    try:
        ended = bool(select.select([heard], [], [], PATIENCE_S if bound else 0.5)[0])
    finally:
        if not bound:
            os.kill(worker, signal.SIGKILL)
        os.close(heard)
    return ended


def test_a_worker_ends_with_a_killed_run() -> None:
    assert ended_after_its_run(bound=True)


def test_by_itself_it_would_go_on() -> None:
    assert not ended_after_its_run(bound=False)


def test_what_is_no_worker_is_left_alone() -> None:
    end_with_the_run()
    assert multiprocessing.parent_process() is None
