# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Workers end with the run that they belong to, however it ended."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import end_with_the_run

BOUND = "bound"
PATIENCE_S = 30


def work(kind: str) -> None:
    """Be a worker in a session of its own, as Ansible's are."""
    os.setsid()
    if kind == BOUND:
        end_with_the_run()
    print(os.getpid(), flush=True)
    signal.pause()


def is_heard_of_after_its_run(kind: str) -> bool:
    """Kill a run; tell whether its worker still holds the pipe that both have."""
    run = subprocess.Popen([sys.executable, __file__, kind], stdout=subprocess.PIPE)
    assert run.stdout is not None
    worker = int(run.stdout.readline())
    run.kill()
    run.wait()
    ended = bool(select.select([run.stdout], [], [], PATIENCE_S if kind == BOUND else 0.5)[0])
    if not ended:
        os.kill(worker, signal.SIGKILL)
    run.stdout.close()
    return not ended


def test_a_worker_ends_with_a_killed_run() -> None:
    assert not is_heard_of_after_its_run(BOUND)


def test_by_itself_it_would_go_on() -> None:
    assert is_heard_of_after_its_run("free")


def test_what_is_no_worker_is_left_alone() -> None:
    end_with_the_run()
    assert multiprocessing.parent_process() is None


if __name__ == "__main__":
    multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],)).start()
    signal.pause()
