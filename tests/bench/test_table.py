# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The page of measured costs."""

from __future__ import annotations

import pathlib

import pytest

from tests.bench.table import Table, sections_of


def test_sections_that_were_not_measured_stay(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "benchmarks.md"
    first = Table()
    first.add("Small", "time", 1.0, 2.0, "s", "a note")
    first.note("Large", "time", "9 s")
    first.write(page)
    second = Table()
    second.add("Large", "time", 3.0, 4.0, "s")
    second.write(page)
    text = page.read_text()
    assert list(sections_of(text)) == ["Small", "Large"]
    assert "| time | 1 s | <= 2 s | a note |" in text
    assert "| time | 3 s | <= 4 s |  |" in text
    assert "9 s" not in text
    again = Table()
    again.write(page)
    assert page.read_text() == text


def test_what_is_over_its_budget_is_named() -> None:
    table = Table()
    table.add("Small", "time", 3.0, 2.0, "s")
    with pytest.raises(AssertionError, match="Small: time: 3 s, budget 2 s"):
        table.check()
    table.check()
