# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them."""

from __future__ import annotations

import pytest

from ironspan.backup.text import size


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (3 << 20, "3 MiB"),
        (3 << 30, "3.0 GiB"),
        (5000 << 30, "5000.0 GiB"),
    ],
)
def test_bytes_are_shown_in_the_unit_that_fits(count: float, shown: str) -> None:
    assert size(count) == shown
