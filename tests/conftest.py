# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the table of measured costs."""

from __future__ import annotations

import collections.abc
import os
import pathlib

import pytest

from tests.bench.table import Table


@pytest.fixture(scope="session")
def table() -> collections.abc.Iterator[Table]:
    """Return the table that this run fills; IRONSPAN_BENCH_RECORD names the page that is written from it."""
    filled = Table()
    yield filled
    target = os.environ.get("IRONSPAN_BENCH_RECORD")
    if target and filled.sections:
        filled.write(pathlib.Path(target))
    print("\n" + filled.text())
