# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a BMC of the lab, on purpose."""

from __future__ import annotations

import dataclasses
import re
import threading
import typing as t

Kind = t.Literal[
    "401", "403", "500", "500-after", "slow", "reset", "reset-after", "garbage", "huge", "deaf", "elsewhere"
]
"""``reset`` cuts the connection instead of doing anything, ``reset-after`` and ``500-after`` do it and fail
then, ``deaf`` says that it was done and does nothing, ``elsewhere`` names another host to go on with."""
SLOW_S = 3600.0


@dataclasses.dataclass(slots=True)
class Fault:
    """One fault.

    Args:
        kind: what happens.
        method: of the requests that it happens to; "" for all.
        path: regular expression, found in their path; "" for all.
        times: how often; None for always.
        seconds: of ``slow``.
        message: what an error says.
    """

    kind: Kind
    method: str = ""
    path: str = ""
    times: int | None = None
    seconds: float = SLOW_S
    message: str = "of the lab's own"


class Faults:
    """Those of one BMC."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self.power: t.Literal["", "deaf", "claims-off", "claims-on"] = ""
        """How it lies about power: does nothing, or says so whatever is."""
        self.stale_media = False
        """An image that was ejected is shown as inserted."""
        self.serial = ""
        """Another serial number than the server has; "" for its own."""

    def add(self, *faults: Fault) -> None:
        """Let these happen from now on."""
        with self._lock:
            self._faults += faults

    def clear(self) -> None:
        """Let nothing happen any more."""
        with self._lock:
            self._faults.clear()
        self.power, self.stale_media, self.serial = "", False, ""

    def of(self, method: str, path: str) -> Fault | None:
        """Return what happens to a request, and count it."""
        with self._lock:
            for fault in self._faults:
                if fault.times == 0 or (fault.method and fault.method != method):
                    continue
                if re.search(fault.path, path):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None
