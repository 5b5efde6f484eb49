# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When a packet leaves the WAN, or whether it does: one direction, no clock and no device here."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

#: What a router's buffer holds of a rate-limited line, in seconds of that rate (rule of thumb: about an RTT).
BUFFER_S = 0.1
#: But at least this many bytes, so that a slow line still takes a burst of full packets.
BUFFER_MINIMUM = 64 * 1024
#: Bytes one direction keeps at most, so that a long delay cannot eat the memory: 2 Gbit/s at 250 ms.
IN_FLIGHT_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What the link does to packets; both directions alike.

    Attributes:
        rtt_s: Round-trip time in seconds; each direction delays by half.
        jitter_s: Each direction adds a random 0 to half of this, in seconds, keeping the order of packets.
        loss: Probability that a packet is lost, per direction.
        rate_bit_s: Bits per second per direction; 0 is no limit.
        seed: Of the random numbers: the same seed and packets give the same losses.
        cut: Nothing passes.
    """

    rtt_s: float = 0.030
    jitter_s: float = 0.0
    loss: float = 0.0
    rate_bit_s: float = 0.0
    seed: int = 1
    cut: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("rtt_s", 0, 60),
            ("jitter_s", 0, 60),
            ("loss", 0, 1),
            ("rate_bit_s", 0, 1e12),
        ):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"{name} is {value!r}, must be a number from {low} to {high:g}")
        if 0 < self.rate_bit_s < 1000:
            raise ValueError(f"rate_bit_s is {self.rate_bit_s!r}, must be 0 (no limit) or at least 1000")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ValueError(f"seed is {self.seed!r}, must be a whole number")
        if not isinstance(self.cut, bool):
            raise ValueError(f"cut is {self.cut!r}, must be true or false")


@dataclass
class Counters:
    """What became of the packets offered to one direction."""

    offered_packets: int = 0
    offered_bytes: int = 0
    delivered_packets: int = 0
    delivered_bytes: int = 0
    lost_packets: int = 0
    overflow_packets: int = 0
    cut_packets: int = 0
    refused_packets: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For the control socket."""
        return asdict(self)


class Direction:
    """Packets under way in one direction."""

    def __init__(self, settings: Settings, salt: int) -> None:
        self.counters = Counters()
        self._salt = salt
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._waiting_bytes = 0
        self._line_free = 0.0
        self._last_release = 0.0
        self._random = random.Random()
        self.settings = settings
        self.apply(settings, reseed=True)

    def apply(self, settings: Settings, *, reseed: bool = False) -> None:
        """Use `settings` from the next packet on; a cut also drops what is under way."""
        if reseed or settings.seed != self.settings.seed:
            self._random.seed(settings.seed * 2 + self._salt)
        self.settings = settings
        self._delay = settings.rtt_s / 2
        self._jitter = settings.jitter_s / 2
        self._seconds_per_byte = 8 / settings.rate_bit_s if settings.rate_bit_s else 0.0
        self._buffer_s = max(BUFFER_S, BUFFER_MINIMUM * self._seconds_per_byte)
        if settings.cut:
            self.counters.cut_packets += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
        if not settings.rate_bit_s:
            self._line_free = 0.0

    def offer(self, packet: bytes, now: float) -> float | None:
        """Take a packet in at time `now` (seconds, monotonic).

        Returns:
            When it leaves, never before an earlier packet; None when it was dropped.
        """
        counters, settings, size = self.counters, self.settings, len(packet)
        counters.offered_packets += 1
        counters.offered_bytes += size
        if settings.cut:
            counters.cut_packets += 1
            return None
        if settings.loss and self._random.random() < settings.loss:
            counters.lost_packets += 1
            return None
        start = now
        if self._seconds_per_byte:
            start = max(now, self._line_free)
            if start - now > self._buffer_s:
                counters.overflow_packets += 1
                return None
        if self._waiting_bytes + size > IN_FLIGHT_LIMIT:
            counters.overflow_packets += 1
            return None
        if self._seconds_per_byte:
            start += size * self._seconds_per_byte
            self._line_free = start
        release = start + self._delay
        if self._jitter:
            release += self._random.random() * self._jitter
        if release < self._last_release:
            release = self._last_release
        self._last_release = release
        self._waiting.append((release, packet))
        self._waiting_bytes += size
        return release

    def due(self, now: float) -> bytes | None:
        """Take out the next packet whose time has come, None when there is none."""
        if self._waiting and self._waiting[0][0] <= now:
            packet = self._waiting.popleft()[1]
            self._waiting_bytes -= len(packet)
            return packet
        return None

    def delivered(self, size: int) -> None:
        """Count a packet that the far side took."""
        self.counters.delivered_packets += 1
        self.counters.delivered_bytes += size

    def refused(self) -> None:
        """Count a packet that the far side's device had no room for, or refused as no packet at all."""
        self.counters.refused_packets += 1

    @property
    def next_release(self) -> float | None:
        """When the next packet leaves; None when nothing is under way."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def in_flight(self) -> tuple[int, int]:
        """Packets and bytes under way."""
        return len(self._waiting), self._waiting_bytes
