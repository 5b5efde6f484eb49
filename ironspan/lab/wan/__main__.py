# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`python -m ironspan.lab.wan FOLDER NAMESPACE_A NAMESPACE_R`: the WAN link's process."""

from __future__ import annotations

import sys
from pathlib import Path

from ironspan.lab.wan.process import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
