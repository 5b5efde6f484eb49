# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Starting the lab's own processes and finding them again for certain.

A process is known by its number together with its start time. Each also carries the lab's folder in
its environment: that finds the ones whose number was never written down.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ironspan.lab import files

MARKER = "IRONSPAN_LAB_FOLDER"


def start_time(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None when there is no such process or it is a zombie."""
    # Imported late: commands that use Ansible let it find the collection first.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.processes import started

    found = started(pid)
    return int(found) if found else None


def spawn(
    command: Sequence[str], folder: Path, name: str, environment: Mapping[str, str] | None = None
) -> int:
    """Start `command` in its own session, logging to FOLDER/log/NAME.log, and remember it under NAME."""
    log = folder / "log" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            env={**os.environ, **(environment or {}), MARKER: str(folder)},
        )
    remember(folder, name, child.pid)
    # The child outlives us on purpose: without this, Popen would warn about it when collected.
    child.returncode = 0
    return child.pid


def remember(folder: Path, name: str, pid: int) -> None:
    """Write down the process NAME of the lab in FOLDER."""
    record = {"pid": pid, "start": start_time(pid)}
    files.write_atomic(folder / "run" / f"{name}.json", json.dumps(record) + "\n")


def forget(folder: Path, name: str) -> None:
    """Forget the process NAME, which has ended for good."""
    (folder / "run" / f"{name}.json").unlink(missing_ok=True)


def running(folder: Path, name: str) -> int | None:
    """Number of the process NAME when it is still the one that was started, else None."""
    try:
        record = json.loads((folder / "run" / f"{name}.json").read_text())
        pid, started = int(record["pid"]), record["start"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if started is not None and start_time(pid) == started else None


def marked(folder: Path) -> list[int]:
    """All processes that carry the folder's mark in the environment they were started with."""
    mark = f"{MARKER}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def end(folder: Path) -> list[int]:
    """Kill all that carry the folder's mark, and what they have started meanwhile; return what is left."""
    left: list[int] = []
    while (found := marked(folder)) and set(found) != set(left):
        left = kill(found)
    return found


def kill(pids: Iterable[int], timeout_s: float = 60.0) -> list[int]:
    """Kill the processes with SIGKILL and wait until they are gone; return those that are not."""
    waiting: dict[int, int] = {}
    for pid in pids:
        started = start_time(pid)
        if started is not None:
            waiting[pid] = started
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout_s
    while waiting:
        # First: after a time in which this process was not let run it looks once more.
        over = time.monotonic() >= deadline
        for pid in list(waiting):
            with contextlib.suppress(ChildProcessError, OSError):
                os.waitpid(pid, os.WNOHANG)
            if start_time(pid) != waiting[pid]:
                del waiting[pid]
        if over:
            break
        if waiting:
            time.sleep(0.02)
    return list(waiting)
