# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Workers end with the run that they belong to, and the run with its command, however those ended."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import worker
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children, children_bound

BOUND, REAPED = "bound", "reaped"
PATIENCE_S = 120
ACTIONS = Path(__file__).resolve().parents[2] / "plugins" / "action"


def work() -> None:
    """Be a worker in a session of its own, as Ansible's are."""
    os.setsid()
    print(os.getpid(), flush=True)
    signal.pause()


def is_heard_of_after_its_run(*kind: str) -> bool:
    """Kill a run; tell whether its worker still holds the pipe that both have.

    Args:
        kind: ``bound``: the run binds its workers; ``reaped``: somebody waits for the run that was killed,
            without it the run stays a zombie.
    """
    run = subprocess.Popen([sys.executable, __file__, *kind], stdout=subprocess.PIPE)
    assert run.stdout is not None
    number = int(run.stdout.readline())
    run.kill()
    if REAPED in kind:
        run.wait()
    ended = bool(select.select([run.stdout], [], [], PATIENCE_S if BOUND in kind else 0.5)[0])
    if not ended:
        os.kill(number, signal.SIGKILL)
    run.stdout.close()
    run.wait()
    return not ended


def test_a_worker_ends_with_a_killed_run() -> None:
    assert not is_heard_of_after_its_run(BOUND, REAPED)


def test_a_run_that_became_a_zombie_has_ended() -> None:
    assert not is_heard_of_after_its_run(BOUND)


def test_by_itself_it_would_go_on() -> None:
    assert is_heard_of_after_its_run("free", REAPED)


def test_a_child_whose_parent_was_gone_before_it_asked_ends_at_once() -> None:
    """The forked one is stopped between fork and prctl here, by having another number for its parent."""
    with children_bound():
        worker._State.parent = 1
        child = os.fork()
        if not child:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_it_lasts_as_long_as_it_was_asked_for() -> None:
    with children_bound():
        assert worker._State.parent == os.getpid()
    assert worker._State.parent == 0


@pytest.mark.parametrize("action", sorted(path.stem for path in ACTIONS.glob("*.py")))
def test_the_main_process_binds_its_workers_when_it_imports_an_action(action: str) -> None:
    text = (ACTIONS / f"{action}.py").read_text()
    homes = ("actions.cluster import", "actions.page import", "actions.module import")
    assert "\nbind_children()" in text or any(home in text for home in homes)


def test_no_module_is_run_by_an_action_that_is_not_the_projects() -> None:
    """Its workers would not be bound in a playbook that runs nothing else."""
    modules = {path.stem for path in (ACTIONS.parent / "modules").glob("*.py")}
    assert modules == {path.stem for path in ACTIONS.glob("*.py")}


if __name__ == "__main__":
    if BOUND in sys.argv:
        bind_children()
    multiprocessing.get_context("fork").Process(target=work).start()
    signal.pause()
