# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Talking to the WAN process, and the units people write link settings in."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

from ironspan.lab.errors import LabError
from ironspan.lab.wan.process import socket_path

_TIME = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATE = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([a-z%]*)\Z")


def _parse(text: str, units: dict[str, float], example: str) -> float:
    match = _NUMBER.match(text.strip().lower())
    if not match or match[2] not in units:
        raise LabError(f"{text!r}: write a number and one of {', '.join(units)}, for example {example}")
    return float(match[1]) * units[match[2]]


def parse_time(text: str) -> float:
    """Seconds from `30ms`, `1s` or `500us`."""
    return _parse(text, _TIME, "30ms")


def parse_rate(text: str) -> float:
    """Bits per second from `500mbit` or `1gbit`; `0` or `none` is no limit."""
    return 0.0 if text.strip().lower() in ("0", "none") else _parse(text, _RATE, "500mbit")


def parse_loss(text: str) -> float:
    """Probability from `0.1%`."""
    value = 0.0 if text.strip() == "0" else _parse(text, {"%": 0.01}, "0.1%")
    if value > 1:
        raise LabError(f"{text!r}: more than every packet cannot be lost")
    return value


def request(folder: Path, changes: dict[str, Any] | None = None, timeout_s: float = 30.0) -> dict[str, Any]:
    """Ask the WAN process of the lab in `folder` to change settings (none: only to show them).

    Returns:
        {"settings": {...}, "counters": {"azure_to_rack": {...}, "rack_to_azure": {...}}}.

    Raises:
        LabError: The process does not run or refused the change.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            reply = _asked(folder, changes or {}, timeout_s)
            break
        except (BrokenPipeError, ConnectionResetError, EOFError) as error:
            # It waits 50 ms for what is asked, which a machine with much to do may take longer for.
            if time.monotonic() > until:
                raise _silent(error) from error
        except (OSError, ValueError) as error:
            raise _silent(error) from error
    if "error" in reply:
        raise LabError(f"the WAN link refused: {reply['error']}")
    return reply


def _asked(folder: Path, changes: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(socket_path(folder)))
        connection.sendall(json.dumps({"set": changes}).encode() + b"\n")
        line = connection.makefile("rb").readline()
    if not line:
        raise EOFError("it hung up")
    reply: dict[str, Any] = json.loads(line)
    return reply


def _silent(error: Exception) -> LabError:
    return LabError(f"the WAN link does not answer ({error}); `ironspan lab up` starts it again", 1)


def wait_ready(folder: Path, timeout_s: float = 60.0) -> None:
    """Return once the WAN process answers."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            request(folder)
            return
        except LabError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
