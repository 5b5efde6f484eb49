# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the unit tests of the backup share."""

from __future__ import annotations

import pytest

from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands at 1000 s."""
    return Clock()
