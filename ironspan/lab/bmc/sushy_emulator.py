# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-bmc-emulator``: what sushy-tools' package would install as a command."""

from __future__ import annotations

import importlib
import sys


def main() -> int:
    """Run the emulator with the options of the process, and return its exit code."""
    sys.argv[0] = "sushy-emulator"
    return importlib.import_module("sushy_tools.emulator.main").main() or 0
