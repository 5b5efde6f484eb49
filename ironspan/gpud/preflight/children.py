# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Processes that a preflight starts: tests with a deadline, and the look at who else has a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import ironspan
from ironspan.gpud.processes import there

_LONGEST = 1 << 16
_KILL_S = 5.0
_LOOK_S = 0.1
_PR_SET_PDEATHSIG = 1
NO_DAEMON = "/nonexistent/mps"
"""Where CUDA finds no MPS daemon, and so computes without one."""


def environment(library: str = "", gpus: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a process of ours.

    Args:
        library: folder of NVIDIA's libraries, empty for the system's own.
        gpus: UUIDs of those that it sees; none for all.
    """
    above = str(Path(ironspan.__file__).parents[1])
    paths = [above, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if library:
        found["LD_LIBRARY_PATH"] = library
    if gpus:
        # Compiled anew each time, so that nothing is left in a home folder.
        found |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "CUDA_CACHE_DISABLE": "1"}
        # Never through an MPS daemon, whose clients get a share of the GPU.
        found["CUDA_MPS_PIPE_DIRECTORY"] = NO_DAEMON
    return found


def bound(parent: int) -> None:
    """Let this process end when the one that started it does, also when that is killed or was already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def command(module: str, *arguments: str) -> list[str]:
    """Return what starts a module of this package, which is told by whom."""
    return [sys.executable, "-P", "-m", f"ironspan.gpud.preflight.{module}", str(os.getpid()), *arguments]


class Child:
    """One test of one GPU.

    Args:
        test: its name.
        gpus: UUIDs of those that it sees, its own first.
        seconds: how long it measures.
        deadline_s: after which it is killed.
        library: folder of NVIDIA's libraries, empty for the system's own.
    """

    def __init__(
        self, test: str, gpus: Sequence[str], seconds: float, deadline_s: float, library: str
    ) -> None:
        self.test, self.gpu = test, gpus[0]
        self._started, self._deadline, self._out = time.monotonic(), deadline_s, b""
        self._process = subprocess.Popen(
            command("one", test, gpus[0], str(seconds)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment(library, gpus),
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def seconds(self) -> float:
        """Return how long it has run."""
        return time.monotonic() - self._started

    def found(self) -> Mapping[str, t.Any] | None:
        """Return what came out, None while it runs. One that is over its deadline is killed: it failed."""
        # First: one that ends while this process is not let run has answered in time.
        late = self.seconds() >= self._deadline
        self._read()
        code = self._process.poll()
        if code is None:
            if not late:
                return None
            gone = "" if self.kill() else ", and cannot be killed"
            return {"passed": False, "detail": f"no answer within {self._deadline:g} s{gone}"}
        self._read()
        self._close()
        try:
            answer = json.loads(self._out.splitlines()[-1])
            if not isinstance(answer, dict):
                raise ValueError
        except (ValueError, IndexError):
            return {"passed": False, "detail": f"its process ended with {code} and said nothing"}
        return answer

    def kill(self) -> bool:
        """Kill it; return whether it is gone. One that hangs in the driver stays until its call returns."""
        self._process.kill()
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            return False
        self._close()
        return True

    def _read(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return
        with contextlib.suppress(BlockingIOError):
            while len(self._out) < _LONGEST and (more := os.read(self._process.stdout.fileno(), 4096)):
                self._out += more

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()


class Others:
    """Looks which processes that are not ours have a GPU.

    Args:
        library: folder of NVIDIA's libraries, empty for the system's own.
    """

    def __init__(self, library: str) -> None:
        self._process = subprocess.Popen(
            command("busy"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment(library),
        )  # fmt: skip
        self._pids: frozenset[int] = frozenset()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="busy", daemon=True)
        self._thread.start()

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)
        self._thread.join(_KILL_S)

    def wait(self, seconds: float) -> None:
        """Wait until it has looked once."""
        self._looked.wait(seconds)

    def pids(self, ours: frozenset[int]) -> list[int]:
        """Return processes of others; not those that NVML names of a host around this one."""
        return sorted(filter(there, self._pids - ours))

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self._pids = frozenset(map(int, json.loads(line)))
                self._looked.set()
        self._looked.set()


def wait_for(
    children: Sequence[Child], stop: Callable[[], str]
) -> tuple[dict[Child, Mapping[str, t.Any]], str]:
    """Wait for tests that run at the same time.

    Args:
        children: the tests.
        stop: returns why all have to end at once, empty while they may go on.

    Returns:
        What came out of each, and why they were ended; then what came out before.
    """
    done: dict[Child, Mapping[str, t.Any]] = {}
    while len(done) < len(children):
        if why := stop():
            for child in children:
                if child not in done:
                    child.kill()
            return done, why
        for child in children:
            if child not in done and (found := child.found()) is not None:
                done[child] = {**found, "seconds": round(child.seconds(), 1)}
        if len(done) < len(children):
            select.select([], [], [], _LOOK_S)
    return done, ""
