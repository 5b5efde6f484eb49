# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One apply on a site at a time; a run that dies lets go by itself.

The lock is a flock on a file beside the PKI store. Actions run in workers that live for one task, so a small
process keeps the lock: it inherits the open file and ends when ansible-playbook ends, however that happens.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.errors import PlanError

_KEEPER = "import os,select,sys; p=select.poll(); p.register(int(sys.argv[1]),select.POLLIN); p.poll()"
_PATIENCE_S = 2.0
"""The keeper of a run that has just ended may need a moment to notice."""


def lock_file(store: str) -> Path:
    """Return the lock of the site with this PKI store."""
    path = Path(store).expanduser()
    return path.with_name(f"{path.name}.lock")


def take(store: str, owner: int) -> None:
    """Lock the site until a process ends.

    Args:
        store: folder of its PKI store.
        owner: number of the process of ansible-playbook.

    Raises:
        PlanError: another run has it.
    """
    path = lock_file(store)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait(descriptor, path)
        watched = os.pidfd_open(owner)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {owner} on {os.uname().nodename}\n".encode(), 0)
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-c", _KEEPER, str(watched)],
                pass_fds=(descriptor, watched),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(watched)
    finally:
        os.close(descriptor)


def take_for_run(folder: Path, store: str) -> None:
    """Lock the site for this run of ansible-playbook, once.

    Args:
        folder: private to the run.
        store: folder of the site's PKI store.

    Raises:
        PlanError: another run has it.
    """
    mark = folder / "site-lock"
    if mark.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "site-lock.taking").open("w") as taking:
        fcntl.flock(taking, fcntl.LOCK_EX)
        if not mark.exists():
            # This worker ends with its task, its parent with the run.
            take(store, os.getppid())
            mark.touch()


def _wait(descriptor: int, path: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "an unknown process"
                raise PlanError(
                    f"another run is changing this site: {holder} (lock {path})",
                    "wait until it has ended; if it is dead, the lock is free already",
                ) from None
            time.sleep(0.05)
        else:
            return
