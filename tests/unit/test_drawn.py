# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Property tests draw the same values in every run: what failed fails again, and nothing fails by chance."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest


def drawn() -> list[tuple[int, str]]:
    """Return what a property test is given."""
    found = []

    @hypothesis.given(st.integers(), st.text())
    def example(number: int, text: str) -> None:
        found.append((number, text))

    example()
    return found


def test_what_is_drawn_depends_on_no_chance_and_on_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hypothesis.settings().derandomize:
        pytest.skip("a long run searches")
    first = drawn()
    # Hypothesis takes constants from every module of the project that is loaded.
    source = tmp_path / "loaded_later.py"
    source.write_text(
        "CONSTANTS = (" + ", ".join(f"{70_000 + n}, 'constant {n}'" for n in range(400)) + ")\n"
    )
    module = types.ModuleType("loaded_later")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    assert first == drawn()
    assert len(first) >= 100
