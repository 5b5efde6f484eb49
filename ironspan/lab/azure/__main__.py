# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`python -m ironspan.lab.azure FOLDER`: the process of the emulated Azure."""

from __future__ import annotations

import sys
from pathlib import Path

from ironspan.lab.azure.process import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]))
