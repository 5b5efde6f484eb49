# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Everything in this folder is a bench."""

from __future__ import annotations

import pathlib

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder."""
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.bench)
