# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Script: bring the lab NAME up, down or to another size, and kill itself right before its STEP-th change.

A change is the start of a program or the renaming of a finished file: between two of them nothing happens to
the machine that the lab would have to find again. Ends with 0 when there are fewer changes than STEP.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ironspan.lab import Lab

_seen = 0


def _count(event: str, _: tuple[Any, ...]) -> None:
    global _seen
    if event in ("subprocess.Popen", "os.rename"):
        _seen += 1
        if _seen == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    lab = Lab(sys.argv[2])
    sys.addaudithook(_count)
    if sys.argv[1].startswith("up"):
        lab.up(1, int(sys.argv[1].removeprefix("up") or 1))
    else:
        lab.down()
