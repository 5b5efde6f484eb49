# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and writes what it cost: ``python meter.py RESULT.json PROGRAM ARGUMENT...``.

The cost is that of every process the command started, those that put themselves in the background included
(OpenSSH's connection masters): this process adopts them, ends them when the command is done and waits for
them, so that the kernel adds their CPU time to ours.

With ``IRONSPAN_BENCH_MEMORY`` set it also looks every second at the memory of all of them together. Its own
CPU time for that is no part of the cost.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
EVERY_S = 1.0


def children(process: int) -> list[int]:
    """Return the process ids of a process's children."""
    try:
        words = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []  # it has just ended
    return [int(word) for word in words]


def descendants() -> list[int]:
    """Return the process ids of everything this process has started."""
    found, todo = [], children(os.getpid())
    while todo:
        process = todo.pop()
        found.append(process)
        todo.extend(children(process))
    return found


def proportional_kib(process: int) -> int:
    """Return a process's memory, what it shares divided by the number of those that share it (PSS, KiB)."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def is_master(process: int) -> bool:
    """Tell whether a process is a connection master of OpenSSH: it has that for a title."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0 ").endswith(b"[mux]")
    return False


class Watch(threading.Thread):
    """Remembers the most memory, and the most connection masters, that were there at a time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most_kib = 0
        self.masters = 0
        self.over = threading.Event()

    def run(self) -> None:
        """Look until it is over."""
        while not self.over.wait(EVERY_S):
            processes = descendants()
            self.masters = max(self.masters, sum(1 for process in processes if is_master(process)))
            self.most_kib = max(self.most_kib, sum(proportional_kib(process) for process in processes))


def main() -> int:
    """Run the command of the command line and return its exit status."""
    target, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    watch = Watch()
    if os.environ.pop("IRONSPAN_BENCH_MEMORY", ""):
        watch.start()
    began = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - began
    watch.over.set()
    deadline = time.monotonic() + 10
    while left := children(os.getpid()):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.05)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "memory_kib": used.ru_maxrss,
        "memory_all_kib": watch.most_kib,
        "masters": watch.masters,
        "status": status,
    }
    pathlib.Path(target).write_text(json.dumps(cost))
    return status


if __name__ == "__main__":
    sys.exit(main())
