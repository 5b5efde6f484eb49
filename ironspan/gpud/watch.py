# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Starts the process that asks NVML, takes what it writes, and ends it when it is silent for too long."""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import select
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import ironspan
from ironspan.program.errors import ServiceError

LOG = logging.getLogger(__name__)
Line = dict[str, t.Any]
_PAGE = 128
_LONGEST_LINE = 4 << 20
_KILL_S = 2.0
_ENDS_S = 30.0
"""It takes a look, and the end of NVML's process, which only a driver that hangs holds up."""
_AGAIN_S = 5.0
_QUIET_S = 60.0
"""For so long a reset waits for NVML's process to end: it fails while a GPU is open."""


class Hung(ServiceError):
    """A call of NVML does not return.

    Args:
        call: its name.
        gpu: index of the GPU, -1 for none.
        seconds: for how long nothing was heard.
    """

    def __init__(self, call: str, gpu: int, seconds: float) -> None:
        of = f" of GPU {gpu}" if gpu >= 0 else ""
        super().__init__(
            f"NVML does not return from {call}{of} for {seconds:.0f} s.",
            "The driver hangs: look for XIDs in the kernel's log; a reboot is what helps in most cases.",
            retryable=True,
        )
        self.call, self.gpu, self.seconds = call, gpu, seconds


class _Process:
    """One process that asks NVML."""

    def __init__(self, every_s: float, once: bool, left_out: Sequence[str], library: str) -> None:
        descriptor = os.memfd_create("ironspan-gpud", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, _PAGE)
        self._shared = mmap.mmap(descriptor, _PAGE)
        above = str(Path(ironspan.__file__).parents[1])
        paths = [above, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if library:
            environment["LD_LIBRARY_PATH"] = library
        how = "once" if once else "always"
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "ironspan.gpud.worker",
                str(descriptor),
                str(every_s),
                how,
                *left_out,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
            env=environment,
        )
        os.close(descriptor)
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._rest = b""

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def lines(self, deadline_s: float, ended: Callable[[], bool]) -> Iterator[Line]:
        """Yield what it writes until it ends or ``ended`` is true.

        Raises:
            Hung: it was silent for the deadline.
        """
        silent, look_s = 0.0, min(1.0, deadline_s)
        while not ended():
            began = time.monotonic()
            ready, _, _ = select.select([self._out], [], [], look_s)
            if not ready:
                # A host that stood still counts for one look: its driver had no time to answer either.
                silent += min(time.monotonic() - began, 2 * look_s)
                if silent >= deadline_s:
                    raise Hung(*self._call(), silent)
                continue
            content = os.read(self._out, 1 << 16)
            silent = 0.0
            if not content:
                return
            *whole, self._rest = (self._rest + content).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                self._rest = b""
            for line in whole:
                with contextlib.suppress(ValueError):
                    yield json.loads(line)

    def end(self) -> bool:
        """Kill it. Returns whether it is gone: one that hangs in the kernel stays until its call returns."""
        self._process.kill()
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            return False
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._shared.close()
        return True

    def gone(self) -> bool:
        """Say whether it has ended."""
        return self._process.poll() is not None

    def _call(self) -> tuple[str, int]:
        name, _, gpu = bytes(self._shared[:_PAGE]).rstrip(b"\0").decode("ascii", "replace").partition(" ")
        return name or "the start", int(gpu) if gpu.lstrip("-").isdigit() else -1


class Watch:
    """Keeps a process that asks NVML, in a thread of its own.

    Args:
        heard: called with each line that it writes.
        hung: called when a call of NVML does not return, and again as long as it does not.
        every_s: seconds between readings.
        deadline_s: how long it may be silent.
        left_out: readings that are not made.
        library: folder of libnvidia-ml.so.1, empty for the system's own.
    """

    def __init__(
        self,
        heard: Callable[[Line], object],
        hung: Callable[[Hung], object],
        every_s: float = 2.0,
        deadline_s: float = 45.0,
        left_out: Sequence[str] = (),
        library: str = "",
    ) -> None:
        self._heard, self._hung = heard, hung
        self._every, self._deadline = every_s, deadline_s
        self._left_out, self._library = tuple(left_out), library
        self._heard_at = -1e9
        self._ending = threading.Event()
        self._paused, self._idle = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self.pid = 0

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_ENDS_S)

    def age(self) -> float:
        """Return seconds since something was heard."""
        return time.monotonic() - self._heard_at

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """End the process that asks NVML while the block runs: a GPU that is open cannot be reset."""
        self._idle.clear()
        self._paused.set()
        try:
            self._idle.wait(_QUIET_S)
            yield
        finally:
            self._paused.clear()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._paused.is_set():
                self._idle.set()
                self._ending.wait(0.2)
                continue
            try:
                process = _Process(self._every, False, self._left_out, self._library)
            except OSError as error:
                LOG.error("the process that asks NVML cannot be started: %s", error)
                self._ending.wait(_AGAIN_S)
                continue
            self.pid = process.pid
            self._follow(process)

    def _follow(self, process: _Process) -> None:
        hung = None
        try:
            for line in process.lines(self._deadline, self._stops):
                self._heard_at = time.monotonic()
                self._heard(line)
        except Hung as error:
            hung = error
            LOG.error("%s", error)
            self._hung(error)
        except Exception:
            LOG.exception("what NVML's process wrote could not be used")
        gone = process.end()
        # Only one at a time: each that hangs keeps its memory, and another one would hang as well.
        while not gone and not self._ending.wait(_AGAIN_S):
            gone = process.gone()
            if hung is not None and not gone:
                self._hung(hung)
        if not self._stops():
            self._ending.wait(_AGAIN_S if hung is None else 0.0)

    def _stops(self) -> bool:
        return self._ending.is_set() or self._paused.is_set()


def read_once(deadline_s: float = 45.0, left_out: Sequence[str] = (), library: str = "") -> Line:
    """Read everything once.

    Returns:
        The last line of the process: ``reading`` or ``failed``; empty when it wrote nothing.

    Raises:
        Hung: NVML does not answer.
    """
    process = _Process(1.0, True, left_out, library)
    last: Line = {}
    try:
        for line in process.lines(deadline_s, lambda: False):
            last = line
    finally:
        process.end()
    return last
