# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""BMCs in a process of their own: started, left alone while they run as they should, and told to fail."""

from __future__ import annotations

import json
import socket
import sys
import time
import typing as t
from collections.abc import Sequence
from pathlib import Path

from ironspan.lab import files, processes
from ironspan.lab.bmc import emulator, process
from ironspan.lab.bmc.process import Described
from ironspan.lab.errors import LabError

NAME = "bmcs"
STARTS_WITHIN_S = 120.0


def ensure(folder: Path, systems: Sequence[emulator.System], bmcs: Sequence[Described]) -> bool:
    """Run an emulator with these servers and a BMC for each; servers that run go on.

    Args:
        folder: for their files.
        systems: servers, as the emulator knows them.
        bmcs: their BMCs, whose addresses this machine has.

    Returns:
        Whether the BMCs were started.

    Raises:
        LabError: the emulator is not built, or something does not start.
    """
    text = process.describe(bmcs, emulator.start(folder, systems))
    running = processes.running(folder, NAME)
    changed = files.write_if_changed(process.configuration(folder), text)
    if running and not changed:
        return False
    processes.kill([running] if running else [])
    processes.spawn([sys.executable, "-m", "ironspan.lab.bmc", str(folder)], folder, NAME)
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and processes.running(folder, NAME):
        try:
            command(folder, bmcs[0]["serial"])
        except LabError:
            time.sleep(0.1)
        else:
            return True
    log = folder / "log" / f"{NAME}.log"
    raise LabError(f"the BMCs do not start: {log.read_text(errors='replace')[-2000:]}", exit_code=1)


def command(folder: Path, serial: str, timeout_s: float = 60.0, **asked: t.Any) -> dict[str, t.Any]:
    """Give a BMC a command; see ``process.command`` for what there is.

    Args:
        folder: of the BMCs.
        serial: of the server.
        timeout_s: seconds to wait for the answer.
        asked: the command.

    Raises:
        LabError: they do not run, or it was refused.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(process.socket_path(folder)))
            connection.sendall(json.dumps({"serial": serial, **asked}).encode() + b"\n")
            answer: dict[str, t.Any] = json.loads(connection.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise LabError(f"the BMCs do not answer ({error}); `ironspan lab up` starts them again", 1) from error
    if "error" in answer:
        raise LabError(f"the BMC refused: {answer['error']}")
    return answer
