# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What lasts is told once."""

from __future__ import annotations

import logging

import pytest

from ironspan.program.lasting import Lasting


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([None, None], []),
        (["a", "a", "a"], ["a"]),
        (["a", "b", "a"], ["a", "b", "a"]),
        (["a", None, "a"], ["a", "a"]),
    ],
)
def test_by_its_words(found: list[str | None], told: list[str], caplog: pytest.LogCaptureFixture) -> None:
    lasting = Lasting(logging.getLogger("test"))
    for problem in found:
        lasting.tell(problem)
    assert caplog.messages == told
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}


def test_by_a_name_where_the_words_change(caplog: pytest.LogCaptureFixture) -> None:
    lasting = Lasting(logging.getLogger("test"), logging.ERROR)
    for problem in ("revision 5 is missing", "revision 6 is missing", None, "revision 6 is missing"):
        lasting.tell(problem, "missing")
    assert caplog.messages == ["revision 5 is missing", "revision 6 is missing"]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
