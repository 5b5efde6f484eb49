# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Benches share one table; IRONSPAN_BENCH_RECORD names the page that is written from it."""

from __future__ import annotations

import collections.abc
import os
import pathlib

import pytest

from tests.bench.table import Table


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder."""
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.bench)


@pytest.fixture(scope="session")
def table() -> collections.abc.Iterator[Table]:
    """Return the table that this run fills."""
    filled = Table()
    yield filled
    print("\n" + filled.text())
    target = os.environ.get("IRONSPAN_BENCH_RECORD")
    if target and filled.sections:
        filled.write(pathlib.Path(target))
