# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The WAN's scheduling: order, delay, rate, loss and accounts hold for any traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab.wan.queue import BUFFER_S, IN_FLIGHT_LIMIT, Direction, Settings

#: (gap to the packet before in seconds, bytes)
traffic = st.lists(st.tuples(st.floats(0, 0.05), st.integers(20, 1500)), max_size=60)
settings = st.builds(
    Settings,
    rtt_s=st.floats(0, 0.5),
    jitter_s=st.floats(0, 0.1),
    loss=st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]),
    rate_bit_s=st.sampled_from([0.0, 1e5, 1e6, 1e9]),
    seed=st.integers(0, 5),
)


def offer_all(
    direction: Direction, packets: list[tuple[float, int]]
) -> list[tuple[float, int, float | None]]:
    """Offer everything; returns (offered at, size, release or None)."""
    now, seen = 1000.0, []
    for gap, size in packets:
        now += gap
        seen.append((now, size, direction.offer(bytes(size), now)))
    return seen


@given(settings, traffic)
def test_packets_keep_their_order_and_their_delay(wanted: Settings, packets: list[tuple[float, int]]) -> None:
    seen = offer_all(Direction(wanted, 0), packets)
    last = 0.0
    for offered, _, release in seen:
        if release is not None:
            assert release >= offered + wanted.rtt_s / 2 - 1e-9
            assert release >= last
            last = release


@given(settings, traffic)
def test_without_a_rate_the_delay_is_bounded(wanted: Settings, packets: list[tuple[float, int]]) -> None:
    wanted = replace(wanted, rate_bit_s=0.0)
    latest = 0.0
    for offered, _, release in offer_all(Direction(wanted, 0), packets):
        if release is not None:
            # Jitter may hold a packet behind an earlier, later one, but never beyond that one's own bound.
            latest = max(latest, offered + (wanted.rtt_s + wanted.jitter_s) / 2)
            assert release <= latest + 1e-9


@given(settings, traffic)
def test_every_packet_is_accounted_for(wanted: Settings, packets: list[tuple[float, int]]) -> None:
    direction = Direction(wanted, 0)
    offer_all(direction, packets)
    taken = 0
    while (packet := direction.due(1e9)) is not None:
        direction.delivered(len(packet))
        taken += 1
    counters = direction.counters
    assert counters.offered_packets == len(packets)
    assert counters.delivered_packets == taken
    assert counters.offered_packets == (
        counters.delivered_packets + counters.lost_packets + counters.overflow_packets + counters.cut_packets
    )
    assert direction.in_flight == (0, 0)
    assert direction.next_release is None


@given(st.sampled_from([1e5, 1e6, 5e7]), traffic)
def test_rate_is_never_exceeded(rate: float, packets: list[tuple[float, int]]) -> None:
    direction = Direction(Settings(rtt_s=0.03, rate_bit_s=rate), 0)
    passed = [(release, size) for _, size, release in offer_all(direction, packets) if release is not None]
    for first in range(len(passed)):
        bits = 0
        for last in range(first + 1, len(passed)):
            bits += passed[last][1] * 8
            assert bits <= rate * (passed[last][0] - passed[first][0]) + 1e-3


@given(st.integers(0, 1000), traffic)
def test_losses_repeat_with_the_seed(seed: int, packets: list[tuple[float, int]]) -> None:
    wanted = Settings(loss=0.3, jitter_s=0.01, seed=seed)
    assert offer_all(Direction(wanted, 0), packets) == offer_all(Direction(wanted, 0), packets)


def test_the_two_directions_lose_different_packets() -> None:
    packets = [(0.001, 100)] * 500
    wanted = Settings(loss=0.3)
    lost = [[r is None for _, _, r in offer_all(Direction(wanted, salt), packets)] for salt in (0, 1)]
    assert lost[0] != lost[1]
    for one in lost:
        assert 100 < sum(one) < 200  # 150 expected, standard deviation 10


def test_cut_drops_what_is_under_way_and_what_comes_and_heal_lets_pass_again() -> None:
    direction = Direction(Settings(), 0)
    direction.offer(bytes(100), 1.0)
    direction.apply(Settings(cut=True))
    assert direction.due(1e9) is None
    assert direction.offer(bytes(100), 2.0) is None
    assert direction.counters.cut_packets == 2
    direction.apply(Settings())
    assert direction.offer(bytes(100), 3.0) == pytest.approx(3.015)


def test_packet_leaves_at_its_time_and_not_before() -> None:
    direction = Direction(Settings(rtt_s=0.03), 0)
    direction.offer(b"packet", 1.0)
    assert direction.next_release == pytest.approx(1.015)
    assert direction.due(1.0149) is None
    assert direction.due(1.0151) == b"packet"


def test_slow_line_queues_then_overflows() -> None:
    direction = Direction(Settings(rtt_s=0.0, rate_bit_s=100e6), 0)
    releases = [direction.offer(bytes(1500), 1.0) for _ in range(2000)]
    kept = [r for r in releases if r is not None]
    assert direction.counters.overflow_packets == 2000 - len(kept) > 0
    assert kept[-1] == pytest.approx(1.0 + BUFFER_S, abs=0.001)


def test_very_slow_line_still_takes_a_burst() -> None:
    direction = Direction(Settings(rate_bit_s=64e3), 0)
    assert all(direction.offer(bytes(1500), 1.0) is not None for _ in range(40))


def test_memory_is_bounded() -> None:
    direction = Direction(Settings(rtt_s=10), 0)
    size = 1024 * 1024
    for _ in range(IN_FLIGHT_LIMIT // size):
        assert direction.offer(bytes(size), 1.0) is not None
    assert direction.offer(bytes(size), 1.0) is None
    assert direction.counters.overflow_packets == 1


def test_change_of_settings_keeps_order() -> None:
    direction = Direction(Settings(rtt_s=1.0), 0)
    slow = direction.offer(b"1", 1.0)
    direction.apply(Settings(rtt_s=0.0))
    fast = direction.offer(b"2", 1.0)
    assert slow is not None
    assert fast is not None
    assert fast >= slow


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rtt_s", -1), ("rtt_s", 61), ("rtt_s", "30"), ("rtt_s", float("nan")), ("jitter_s", -0.1),
        ("loss", 1.1), ("loss", -0.1), ("loss", True), ("rate_bit_s", -1), ("rate_bit_s", 999),
        ("rate_bit_s", float("inf")), ("seed", 1.5), ("seed", "x"), ("cut", 1), ("cut", None),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        Settings(**{field: value})
