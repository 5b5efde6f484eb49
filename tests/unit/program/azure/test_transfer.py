# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pieces, order, and what is tried again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.azure.transfer import in_order, pieces, repeat
from ironspan.program.errors import NotThere, ProgramError, ServiceError


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9))
def test_pieces_are_the_same_bytes(chunks: list[bytes], size: int) -> None:
    made = list(pieces(chunks, size))
    assert b"".join(made) == b"".join(chunks)
    assert made
    assert all(len(piece) == size for piece in made[:-1])
    assert len(made[-1]) <= size
    assert made[-1] or len(made) == 1


def test_results_come_in_order_and_little_is_taken_ahead() -> None:
    taken: list[int] = []
    first = threading.Event()

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    def work(number: int) -> int:
        # The first item is the last to be ready.
        if number == 0:
            first.wait(120)
        elif number == 2:
            first.set()
        return number * 10

    results = in_order(work, items(), at_once=3)
    assert next(results) == 0
    assert taken == [0, 1, 2]
    assert list(results) == [number * 10 for number in range(1, 20)]


def test_the_first_failure_is_raised() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise ServiceError("three")
        return number

    made: list[int] = []
    with pytest.raises(ServiceError, match="three"):
        made.extend(in_order(work, range(10), at_once=2))
    assert made == [0, 1, 2]


BUSY = ServiceError("busy", retryable=True)


@pytest.mark.parametrize(
    ("failures", "attempts", "raised"),
    [
        ([], 1, False),
        ([BUSY, BUSY], 3, False),
        ([BUSY] * 9, 4, True),
        ([NotThere("gone")], 1, True),
        ([ServiceError("soon", retryable=True, retry_after=3)], 2, False),
        ([ServiceError("much later", retryable=True, retry_after=60)], 1, True),
        ([ProgramError("another")], 1, True),
        ([ValueError("a bug")], 1, True),
    ],
)
def test_repeating(failures: list[Exception], attempts: int, raised: bool) -> None:
    made: list[int] = []
    slept: list[float] = []

    def attempt() -> str:
        made.append(1)
        if len(made) <= len(failures):
            raise failures[len(made) - 1]
        return "done"

    def explain(error: Exception) -> ProgramError | None:
        return error if isinstance(error, ProgramError) else None

    def run() -> str:
        return repeat(attempt, explain, slept.append, delays=(0.2, 0.6, 1.8))

    if raised:
        with pytest.raises(type(failures[-1])):
            run()
    else:
        assert run() == "done"
    assert len(made) == attempts
    assert len(slept) == attempts - 1
    asked = [error.retry_after or 0 for error in failures if isinstance(error, ServiceError)]
    assert all(seconds >= least for seconds, least in zip(slept, asked, strict=False))
