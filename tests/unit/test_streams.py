# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What one test does to the streams of its process does not reach the next one."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize("turn", [1, 2])
def test_the_next_test_has_blocking_streams(turn: int) -> None:
    """An ssh that was killed left standard error so: the next test's ansible-playbook did not start."""
    assert [os.get_blocking(stream) for stream in range(3)] == [True] * 3
    os.set_blocking(2, False)
