# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How fast a lab is there."""

from __future__ import annotations

import time

import pytest

from ironspan.lab import Lab
from tests.bench.table import Table

SECONDS = 20.0

pytestmark = pytest.mark.lab


def test_a_small_lab_is_up_soon(table: Table) -> None:
    spent = []
    for _ in range(2):
        lab = Lab("bench")
        began = time.monotonic()
        try:
            lab.up(azure=3, rack=2)
            spent.append(time.monotonic() - began)
        finally:
            lab.down()
    what = "lab up, 3 + 2 hosts, until all answer SSH"
    table.add("Lab", what, min(spent), SECONDS, "s", "warm caches")
    table.check()
