# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``python -m ironspan.gpud``."""

from __future__ import annotations

import sys

from ironspan.gpud.main import main

sys.exit(main())
