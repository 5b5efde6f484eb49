# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Imported by Python itself where PYTHONPATH has this folder: the host's clock as another host's might be.

The file that IRONSPAN_TEST_CLOCK names holds the seconds by which the clock is ahead; it may change any time.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

_FILE = pathlib.Path(os.environ["IRONSPAN_TEST_CLOCK"])
_true = time.time


def _shifted() -> float:
    # Deadlines of gRPC are moments that its own code, which is not shifted, compares with the true clock.
    if sys._getframe(1).f_globals["__name__"].startswith("grpc"):
        return _true()
    return _true() + float(_FILE.read_text())


time.time = _shifted
