# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes ``python -m ironspan`` the same as the ``ironspan`` command."""

from __future__ import annotations

import sys

from ironspan.cli.main import main

sys.exit(main())
