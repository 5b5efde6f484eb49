# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One apply on a site at a time; a run that dies lets go by itself.

The lock is a flock on a file beside the PKI store. Actions run in workers that live for one task, so a small
process keeps the lock: it inherits the open file and ends when ansible-playbook ends, however that happens.

Slices of one plan share it: the first one locks the file alone, writes the plan's digest into it and then
shares the lock; the others share it when the file has their plan's digest. What an earlier run wrote there
means nothing, because nobody could have the lock alone while that run lived.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.processes import started

_KEEPER = "import os,select,sys; p=select.poll(); p.register(int(sys.argv[1]),select.POLLIN); p.poll()"
_PLAN = "plan "
_PATIENCE_S = 2.0
"""Whose lock it is may be about to change: slices share it, others look at it."""
_ENDED_PATIENCE_S = 60.0
"""The keeper of a run that has just ended may need a moment to notice, on a busy machine a long one."""
_ALONE = re.compile(r"process (\d+) on (\S+)")
MEMBERS = "members"
"""What a slice locks beside the site while it changes members: no other slice may at the same time."""


def lock_file(store: str, part: str = "") -> Path:
    """Return the lock of the site with this PKI store, or of a part of the site."""
    path = Path(store).expanduser()
    return path.with_name(f"{path.name}{part and f'.{part}'}.lock")


def take(store: str, owner: int, plan: str = "", part: str = "") -> None:
    """Lock the site until a process ends.

    Args:
        store: folder of its PKI store.
        owner: number of the process of ansible-playbook.
        plan: digest of the plan whose slices share the lock; empty to have it alone.
        part: what to lock of the site, all of it by default.

    Raises:
        PlanError: another run has it.
    """
    path = lock_file(store, part)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait(descriptor, path, owner, plan)
        watched = os.pidfd_open(owner)
        try:
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


def take_for_run(folder: Path, store: str, plan: str = "", part: str = "") -> None:
    """Lock the site for this run of ansible-playbook, once.

    Args:
        folder: private to the run.
        store: folder of the site's PKI store.
        plan: digest of the plan whose slices share the lock; empty to have it alone.
        part: what to lock of the site, all of it by default.

    Raises:
        PlanError: another run has it.
    """
    mark = folder / f"{part or 'site'}-lock"
    if mark.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with mark.with_name(f"{mark.name}.taking").open("w") as taking:
        fcntl.flock(taking, fcntl.LOCK_EX)
        if not mark.exists():
            take(store, _controller(), plan, part)
            mark.touch()


def _controller() -> int:
    """Return the process of ansible-playbook: this worker ends with its task, its parent with the run.

    Raises:
        PlanError: it is dead already. Who adopts the orphan then (process 1) would keep the lock for ever.
    """
    parent = multiprocessing.parent_process()
    owner = parent.pid if parent is not None and parent.pid else os.getppid()
    if owner != os.getppid():
        raise PlanError("ansible-playbook was killed while this began", "run it again")
    return owner


def _wait(descriptor: int, path: Path, owner: int, plan: str) -> None:
    begun = time.monotonic()
    while not _taken(descriptor, owner, plan):
        if time.monotonic() - begun > (_ENDED_PATIENCE_S if _has_ended(descriptor) else _PATIENCE_S):
            holder = holder_of(path) or "an unknown process"
            raise PlanError(
                f"another run is changing this site: {holder} (lock {path})",
                "wait until it has ended; if it is dead, the lock is free already",
            )
        # Not all at the same moment: slices start together.
        time.sleep(random.uniform(0.02, 0.08))


def _taken(descriptor: int, owner: int, plan: str) -> bool:
    """Try once; with a plan the lock is shared with runs of the same plan."""
    if _locked(descriptor, fcntl.LOCK_EX):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _holder(owner, plan).encode(), 0)
        # Somebody else may get in while a lock changes its kind; then it is tried again.
        return not plan or _locked(descriptor, fcntl.LOCK_SH)
    if plan and _locked(descriptor, fcntl.LOCK_SH):
        if _plan_in(os.pread(descriptor, 400, 0)) == plan:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(owner: int, plan: str) -> str:
    who = f"process {owner} on {os.uname().nodename}"
    return f"{_PLAN}{plan}, {who} and other slices\n" if plan else f"{who}\n"


def _has_ended(descriptor: int) -> bool:
    """Tell whether who has the lock alone was a run of this machine that is no more."""
    found = _ALONE.fullmatch(os.pread(descriptor, 400, 0).decode(errors="replace").strip())
    return found is not None and found[2] == os.uname().nodename and not started(int(found[1]))


def _plan_in(text: bytes) -> str:
    line = text.decode(errors="replace")
    return line.removeprefix(_PLAN).partition(",")[0] if line.startswith(_PLAN) else ""


def holder_of(path: Path) -> str:
    """Return who has a lock, as it wrote there; empty when nobody has."""
    try:
        with path.open("rb") as file:
            if _locked(file.fileno(), fcntl.LOCK_SH) and not _shared(file.fileno()):
                return ""
            return file.read(400).decode(errors="replace").strip()
    except OSError:
        return ""


def _shared(descriptor: int) -> bool:
    """Tell whether others share a lock: then nobody can have it alone."""
    return not _locked(descriptor, fcntl.LOCK_EX)
