# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Script: bring virtual servers up in FOLDER, and kill itself right before its STEP-th change.

A change is what it is in ``lab_kill.py``. Ends with 0 when there are fewer changes than STEP. Images of
systems are only named: no server is switched on.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from ironspan.lab.virtual import settings, world
from tests.integration.test_virtual_world import COUNT, IMAGES, KILLED

_seen = 0


def _count(event: str, _: tuple[Any, ...]) -> None:
    global _seen
    if event in ("subprocess.Popen", "os.rename"):
        _seen += 1
        if _seen == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    settings.images = lambda mirror: IMAGES
    sys.addaudithook(_count)
    world.up(Path(sys.argv[1]), KILLED, COUNT, lambda *_: None)
