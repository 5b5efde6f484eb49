# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Property tests of the backup are right or wrong, not fast or slow."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.clock import Clock

# A busy machine is slow, not wrong.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands at 1000 s."""
    return Clock()
