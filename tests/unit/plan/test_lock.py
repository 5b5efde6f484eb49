# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lock of a site: taken once, free when its run is dead."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import site_lock

from tests.support.faults import insist


def test_killed_runs_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_lock, "_PATIENCE_S", 0.2)
    store = str(tmp_path / "deep" / "pki")
    run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    # A worker takes the lock for the run, and ends.
    worker = f"from {site_lock.__name__} import take; take({store!r}, {run.pid})"
    subprocess.run([sys.executable, "-c", worker], check=True)
    with pytest.raises(PlanError, match=f"another run is changing this site: process {run.pid} on "):
        site_lock.take(store, run.pid)
    run.kill()
    run.wait()
    monkeypatch.setattr(site_lock, "_PATIENCE_S", 120.0)
    next_run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = time.monotonic()
    site_lock.take(store, next_run.pid)
    assert time.monotonic() - began < 60
    next_run.kill()
    next_run.wait()


def test_a_run_that_has_just_ended_is_waited_for_until_its_keeper_has_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_lock, "_PATIENCE_S", 0.0)
    run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    store = str(tmp_path / "pki")
    try:
        with site_lock.lock_file(store).open("w") as kept:
            fcntl.flock(kept, fcntl.LOCK_EX)

            def write(process: int, host: str) -> None:
                kept.seek(0)
                kept.truncate()
                kept.write(f"process {process} on {host}\n")
                kept.flush()

            nobody = 1 << 30  # beyond the largest pid_max
            here = os.uname().nodename
            for process, host in ((run.pid, here), (nobody, "another-machine")):
                write(process, host)
                with pytest.raises(PlanError, match="another run is changing this site"):
                    site_lock.take(store, run.pid)
            write(nobody, here)
            later = threading.Timer(0.5, fcntl.flock, (kept, fcntl.LOCK_UN))
            later.start()
            site_lock.take(store, run.pid)
            later.join()
    finally:
        run.kill()
        run.wait()


def _worker(folder: Path, parent: int, said: t.Any) -> None:
    while os.getppid() == parent:
        time.sleep(0.01)
    try:
        site_lock.take_for_run(folder / "run", str(folder / "pki"))
        said.put("taken")
    except PlanError as error:
        said.put(str(error))


def _controller(folder: Path, said: t.Any) -> None:
    multiprocessing.get_context("fork").Process(target=_worker, args=(folder, os.getpid(), said)).start()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_an_orphan_does_not_lock_the_site_for_ever(tmp_path: Path) -> None:
    """A worker whose ansible-playbook was killed has another parent, which never ends."""
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    controller = context.Process(target=_controller, args=(tmp_path, said))
    controller.start()
    controller.join(300)
    assert controller.exitcode == -signal.SIGKILL
    insist("orphan", said.get(timeout=300))
    run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        site_lock.take(str(tmp_path / "pki"), run.pid)
    finally:
        run.kill()
        run.wait()


def test_two_sites_do_not_know_each_other(tmp_path: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        site_lock.take(str(tmp_path / "one"), run.pid)
        site_lock.take(str(tmp_path / "two"), run.pid)
    finally:
        run.kill()
        run.wait()
