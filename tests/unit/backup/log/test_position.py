# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The data loss that is told is never smaller than the real one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.log import position as module
from ironspan.backup.log.position import Position
from tests.support.clock import Clock


def test_it_is_the_age_of_the_oldest_that_is_not_stored(clock: Clock) -> None:
    position = Position(10, clock)
    for revision in (11, 12, 13):
        clock.now += 1
        position.received(revision)
        position.acknowledged(revision, clock.now)
    assert position.rpo() == 3
    position.stored(12)
    assert position.rpo() == 1
    position.stored(13)
    assert position.rpo() == 0
    assert (position.received_revision, position.durable_revision) == (13, 13)


def test_silence_counts_as_loss_until_etcd_says_that_there_is_nothing(clock: Clock) -> None:
    position = Position(10, clock)
    clock.now += 5
    assert position.rpo() == 5
    position.acknowledged(10, clock.now - 1)
    assert position.rpo() == 1


def test_what_happened_before_the_start_counts(clock: Clock) -> None:
    position = Position(10, clock, age_s=3600)
    position.acknowledged(15, clock.now)
    assert position.rpo() == 3600
    position.stored(15)
    assert position.rpo() == 0


def test_what_is_of_an_unknown_age_counts_until_it_is_stored(clock: Clock) -> None:
    position = Position(10, clock, age_s=math.inf)
    position.acknowledged(15, clock.now)
    assert position.rpo() == math.inf
    position.stored(15)
    assert position.rpo() == 0


def test_a_member_that_lags_is_found_out(clock: Clock) -> None:
    position = Position(10, clock, age_s=100)
    clock.now += 1
    position.received(12)
    position.stored(12)
    assert position.rpo() == 101
    position.acknowledged(15, clock.now)
    position.received(14)
    position.stored(14)
    assert position.rpo() == 101
    position.received(15)
    position.stored(15)
    assert position.rpo() == 0


def test_a_long_outage_takes_little_memory_and_is_told_about_right(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FACTS", 16)
    position = Position(0, clock)
    for revision in range(1, 1001):
        clock.now += 1
        position.acknowledged(revision, clock.now)
    assert len(position._facts) <= 16
    position.stored(1000)
    assert position.rpo() < 1000


@given(
    st.lists(st.tuples(st.sampled_from("wwpds"), st.integers(1, 5), st.floats(0.001, 2)), max_size=60),
    st.integers(2, 8),
)
def test_it_is_never_less_than_the_oldest_revision_that_is_not_stored(
    steps: list[tuple[str, int, float]], facts: int
) -> None:
    """Writes, reads of what there is, deliveries of some of it and what of that is stored, in any order."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FACTS", facts)
        position = Position(0, clock)
        written: dict[int, float] = {}
        received = stored = 0
        for kind, count, pause in steps:
            clock.now += pause
            if kind == "w":
                written |= dict.fromkeys(range(len(written) + 1, len(written) + count + 1), clock.now)
            elif kind == "p":
                position.acknowledged(len(written), clock.now)
            elif kind == "d":
                received = min(len(written), received + count)
                position.received(received)
            else:
                stored = min(received, stored + count)
                position.stored(stored)
            waiting = [at for revision, at in written.items() if revision > stored]
            oldest = clock.now - min(waiting) if waiting else 0
            assert position.rpo() >= oldest - 1e-6
            if not waiting and kind == "p":
                assert position.rpo() == 0
