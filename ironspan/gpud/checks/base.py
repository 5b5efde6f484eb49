# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a check is, what it looks at, and what it finds.

A check is named as in docs/gpu-health.md, has limits that a site may change, and can be switched off.
"""

from __future__ import annotations

import collections
import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Limits = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is so now.

    Args:
        event: key of the GPU policy, such as ``nvml remap_pending``.
        gpu: UUID; empty where it is about the host.
        detail: for people, in a few words.
    """

    event: str
    gpu: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the inventory says of the host's GPUs; empty or None says nothing.

    Args:
        count: how many.
        model: part of the name that NVML says, such as ``H100``.
        driver: version of the driver.
        mig: whether MIG is on.
        compute_mode: as NVML numbers it.
        links: NVLinks of each GPU that must be up.
        ports: of RDMA adapters that must be up.
        peermem: the module nvidia_peermem is to be loaded.
        iommu: ``passthrough``, ``disabled``, or nothing.
        direct: PCIe's access control was to be told at boot not to redirect.
    """

    count: int | None = None
    model: str = ""
    driver: str = ""
    mig: bool = False
    compute_mode: int = 0
    links: int | None = None
    ports: int | None = None
    peermem: bool = False
    iommu: str = ""
    direct: bool = False


class Gpu:
    """One GPU of a reading."""

    def __init__(self, values: Mapping[str, t.Any]) -> None:
        self._values = values

    @property
    def index(self) -> int:
        """Its number in NVML."""
        return int(self._values.get("index", -1))

    @property
    def uuid(self) -> str:
        """Its UUID; empty where NVML did not say it."""
        return str(self.get("uuid") or "")

    @property
    def lost(self) -> int:
        """NVML's error that says that it is not there, 0 for none."""
        return int(self._values.get("lost") or 0)

    def get(self, name: str) -> t.Any:
        """Return a value; None where the card has none, or an error was answered."""
        found = self._values.get(name)
        return None if isinstance(found, dict) and "error" in found else found

    def part(self, name: str, key: str) -> t.Any:
        """Return one of several values that are read together."""
        return (self.get(name) or {}).get(key)

    def errors(self) -> dict[str, int]:
        """Return NVML's errors by the names of what was asked."""
        found = self._values.items()
        return {name: value["error"] for name, value in found if isinstance(value, dict) and "error" in value}


class Past:
    """Numbers of the last minutes, by GPU and name."""

    def __init__(self, seconds: float = 900.0) -> None:
        self._seconds = seconds
        self._kept: dict[tuple[str, str], collections.deque[tuple[float, float]]] = {}

    def add(self, gpu: str, name: str, now: float, value: float) -> None:
        """Keep a number."""
        kept = self._kept.setdefault((gpu, name), collections.deque())
        if kept and value < kept[-1][1] and not name.startswith("="):
            kept.clear()  # a counter that begins again: the driver was loaded, or the GPU was reset
        kept.append((now, value))
        while kept[0][0] < now - self._seconds:
            kept.popleft()

    def growth(self, gpu: str, name: str, seconds: float) -> tuple[float, float]:
        """Return by how much a counter grew, and in how many of the last seconds."""
        kept = self._kept.get((gpu, name))
        if not kept:
            return 0.0, 0.0
        now = kept[-1][0]
        first = next(entry for entry in kept if entry[0] >= now - seconds)
        return kept[-1][1] - first[1], now - first[0]

    def share(self, gpu: str, name: str, seconds: float) -> tuple[float, int]:
        """Return the mean of what was kept in the last seconds, and of how many numbers."""
        kept = self._kept.get((gpu, name), collections.deque())
        recent = [value for at, value in kept if at >= kept[-1][0] - seconds]
        return (sum(recent) / len(recent) if recent else 0.0), len(recent)

    def most(self, gpu: str, name: str) -> float:
        """Return the largest number that was kept, 0 without any."""
        return max((value for _, value in self._kept.get((gpu, name), ())), default=0.0)


@dataclass(frozen=True, slots=True)
class Context:
    """What a check looks at.

    Args:
        gpus: of the reading.
        system: versions that NVML says.
        host: what the host's files say.
        expected: by the inventory.
        seen: UUIDs of all GPUs that were there since the host booted.
        past: numbers of before, this reading's included.
        now: seconds, never set back.
        fresh: whether the slow values are new.
        used: UUIDs of GPUs that pods have; None where nobody knows.
    """

    gpus: Sequence[Gpu]
    system: Mapping[str, t.Any]
    host: Mapping[str, t.Any]
    expected: Expected
    seen: frozenset[str] = frozenset()
    past: Past = field(default_factory=Past)
    now: float = 0.0
    fresh: bool = True
    used: frozenset[str] | None = None

    @property
    def there(self) -> list[Gpu]:
        """GPUs that answer."""
        return [gpu for gpu in self.gpus if not gpu.lost]


class Check(t.NamedTuple):
    """One check.

    Args:
        name: as in the documentation, such as ``H08``.
        title: what it looks at.
        find: what it finds.
        limits: its thresholds, by names with their units.
        events: keys of the policy that it may report.
    """

    name: str
    title: str
    find: Callable[[Context, Limits], Iterator[Finding]]
    limits: Mapping[str, float]
    events: tuple[str, ...]
