# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Property tests of the backup are right or wrong, not fast or slow."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is slow, not wrong.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
