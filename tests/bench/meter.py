# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and writes what it cost: ``python meter.py RESULT.json PROGRAM ARGUMENT...``.

The cost is that of every process the command started, those that put themselves in the background included
(OpenSSH's connection masters): this process adopts them, ends them when the command is done and waits for
them, so that the kernel adds their CPU time to ours.
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
import time

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def children() -> list[int]:
    """Return the process ids of this process's children."""
    return [int(word) for word in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def main() -> int:
    """Run the command of the command line and return its exit status."""
    target, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    began = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - began
    deadline = time.monotonic() + 10
    while left := children():
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
        "status": status,
    }
    pathlib.Path(target).write_text(json.dumps(cost))
    return status


if __name__ == "__main__":
    sys.exit(main())
