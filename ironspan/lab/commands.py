# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Running the machine's own programs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from ironspan.lab.errors import LabError


def run(command: Sequence[str], *, stdin: str | None = None, timeout_s: float = 60.0) -> str:
    """Run `command`, return its standard output, raise LabError with its standard error when it fails."""
    done = attempt(command, stdin=stdin, timeout_s=timeout_s)
    if done.returncode != 0:
        shown = " ".join(command)
        reason = (done.stderr or done.stdout).strip()[-2000:]
        raise LabError(f"`{shown}` failed with exit code {done.returncode}: {reason}", exit_code=1)
    return done.stdout


def attempt(
    command: Sequence[str], *, stdin: str | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run `command` and return its result whatever the exit code; a timeout is a LabError."""
    source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    try:
        return subprocess.run(
            list(command), capture_output=True, text=True, timeout=timeout_s, check=False, **source
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(command)}` did not end within {timeout_s:.0f} s", exit_code=1) from error
    except FileNotFoundError as error:
        raise LabError(f"program {command[0]!r} is not installed") from error
