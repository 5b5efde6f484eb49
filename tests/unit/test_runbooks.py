# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tables of faults in docs/: every row names a test, and that test is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.playbooks import ROOT

HEAD = re.compile(r"\| what \| what happens \| test \(`([a-z_/]+\.py)`\) \|")
ROW = re.compile(r"\| .+ \| .+ \| `(?:([a-z_/]+\.py)::)?(test_[a-z0-9_]+)` \|")
PAGES = ("bare-metal.md", "ironic.md")


def rows(page: str) -> Iterator[tuple[str, str]]:
    """Yield file and name of each row's test; a row that names none fails."""
    file = ""
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if head := HEAD.fullmatch(line):
            file = head[1]
        elif not line.startswith("|"):
            file = ""
        elif file and not line.startswith("|---"):
            row = ROW.fullmatch(line)
            assert row, f"{page}: no test in {line}"
            yield row[1] or file, row[2]


@pytest.mark.parametrize("page", PAGES)
def test_every_fault_has_a_test_that_is_there(page: str) -> None:
    found = list(rows(page))
    assert len(found) > 5
    missing = [
        f"{file}::{name}"
        for file, name in found
        if not re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
