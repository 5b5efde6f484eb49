# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`python -m ironspan.lab.bmc FOLDER`: BMCs of servers, until the process is ended."""

from __future__ import annotations

import sys
from pathlib import Path

from ironspan.lab.bmc.process import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]))
