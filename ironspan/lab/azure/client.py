# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands to the emulated Azure, given: see control.py for what there is."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from ironspan.lab.errors import LabError


def socket_path(folder: Path) -> Path:
    """The control socket of the emulated Azure in `folder`."""
    return folder / "control.sock"


def request(folder: Path, do: str, timeout_s: float = 10.0, **arguments: Any) -> dict[str, Any]:
    """Give the emulated Azure in `folder` a command.

    Args:
        folder: Its folder.
        do: The command.
        timeout_s: Seconds to wait for the answer.
        arguments: The command's own.

    Returns:
        The answer.

    Raises:
        LabError: It does not run, or refused the command.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(socket_path(folder)))
            connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
            reply: dict[str, Any] = json.loads(connection.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise LabError(
            f"the lab's Azure does not answer ({error}); `ironspan lab up` starts it again", 1
        ) from error
    if "error" in reply:
        raise LabError(f"the lab's Azure refused: {reply['error']}")
    return reply
