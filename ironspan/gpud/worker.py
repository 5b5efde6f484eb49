# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process that asks NVML, and may hang in it: writes a line of JSON for each reading and each event.

    {"reading": {...}}                          everything that is known, every few seconds
    {"xid": 79, "gpu": "GPU-...", "pci": "..."}   an XID of the event set, at once
    {"failed": 9, "text": "..."}                NVML does not start

Who started it reads what it writes, and ends it when it is silent for too long. Then the last call that it
began stands in the memory that both share.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import sys
import time
import typing as t
from collections.abc import Sequence

import pynvml

from ironspan.gpud import host, nvml

PAGE = 128
"""Bytes of the shared memory: name of the call, a space, index of the GPU."""
AGAIN_S = 10.0
"""Seconds after which NVML is started again where it does not start, or has lost a GPU."""
_EVENTS = pynvml.nvmlEventTypeXidCriticalError


class Worker:
    """Asks NVML for ever.

    Args:
        shared: where the name of each call is written before it.
        every_s: seconds between readings.
        out: where lines are written.
    """

    def __init__(self, shared: mmap.mmap, every_s: float, out: t.TextIO) -> None:
        self._shared, self._every, self._out = shared, every_s, out
        self._reader = nvml.Reader(self._before)
        self._events: t.Any = None
        self._opened = False
        self._opened_at = -AGAIN_S

    def run(self) -> None:
        """Work until the pipe breaks."""
        while True:
            now = time.monotonic()
            if now - self._opened_at >= AGAIN_S and not self._well():
                self._open()
            self._tell({"reading": self._read()} if self._opened else {})
            self._wait(now + self._every)

    def once(self) -> None:
        """Write one reading of everything."""
        self._open()
        if self._opened:
            self._tell({"reading": self._read(everything=True)})

    def _read(self, everything: bool = False) -> dict[str, t.Any]:
        found = self._reader.read(everything)
        if found["slow"]:
            self._before("host", -1)
            found["host"] = host.read()
        return found

    def _well(self) -> bool:
        return self._opened and not any(gpu.get("lost") for gpu in self._reader.known)

    def _open(self) -> None:
        self._opened_at = time.monotonic()
        if self._opened:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
        self._opened, self._events = False, None
        try:
            self._reader.open()
        except pynvml.NVMLError as error:
            self._tell({"failed": error.value, "text": str(error)})
            return
        self._opened = True
        self._register()

    def _register(self) -> None:
        self._before("events", -1)
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        registered = 0
        for index, handle in enumerate(self._reader.handles):
            if handle is None:
                continue
            self._before("events", index)
            with contextlib.suppress(pynvml.NVMLError):
                wanted = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & _EVENTS
                if wanted:
                    pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
                    registered += 1
        self._events = events if registered else None

    def _wait(self, until: float) -> None:
        """Pass on events until it is time for the next reading."""
        while (rest := until - time.monotonic()) > 0:
            if self._events is None:
                time.sleep(rest)
                return
            self._before("wait", -1)
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, max(1, int(rest * 1000)))
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    # It says so of the whole set, and at once each time, when one GPU of it is lost.
                    self._events = None
                continue
            self._tell(self._event(event))

    def _event(self, event: t.Any) -> dict[str, t.Any]:
        found: dict[str, t.Any] = {"xid": event.eventData, "gpu": "", "pci": ""}
        with contextlib.suppress(pynvml.NVMLError):
            found["gpu"] = pynvml.nvmlDeviceGetUUID(event.device)
        return found

    def _before(self, name: str, gpu: int) -> None:
        self._shared[:PAGE] = f"{name} {gpu}".encode().ljust(PAGE, b"\0")

    def _tell(self, line: dict[str, t.Any]) -> None:
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._out.flush()


def main(shared: int, every_s: float, once: bool, left_out: Sequence[str]) -> None:
    """Work until the reader is gone.

    Args:
        shared: descriptor of the shared memory.
        every_s: seconds between readings.
        once: whether to read everything once and end.
        left_out: names of readings that are not made.
    """
    for calls in (nvml.RARE, nvml.ONCE, nvml.SLOW, nvml.FAST):
        for name in left_out:
            calls.pop(name, None)
    worker = Worker(mmap.mmap(shared, PAGE), every_s, sys.stdout)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        if once:
            worker.once()
        else:
            worker.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "once", sys.argv[4:])
