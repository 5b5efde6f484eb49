# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Drawn sites with a mistake are refused at its line, those without are taken; `make refuse` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.refuse.case import Watch, run

BLOCKS, WRONG, GOOD = 10, 200, 10
"""Blocks of cases, so that they are spread over the cores, and what each has: 26 to 35 ms of CPU a case."""
WATCH = Watch()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_is_wrong_is_refused_and_what_is_right_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for count, is_good in ((WRONG, False), (GOOD, True)):
        for number in range(block * count, (block + 1) * count):
            verdict = run(number, "ci", tmp_path, WATCH, is_good)
            assert not verdict.fault, verdict


def test_the_watch_sees_what_is_done(tmp_path: Path) -> None:
    with WATCH.watching() as seen:
        (tmp_path / "file").write_text("x")
        (tmp_path / "folder").mkdir()
    assert len(seen) == 2
    (tmp_path / "other").write_text("x")
    assert len(WATCH.seen) == 2
