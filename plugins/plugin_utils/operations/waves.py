# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which hosts are changed at the same time: waves that keep enough of every rack in service."""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host

_PERCENT = re.compile(r"([0-9]{1,3})%")
_Rack = tuple[str, str]


def hosts_out_of(max_unavailable: int | str, size: int) -> int:
    """Return how many hosts of a rack may be out of service at the same time.

    A percentage is rounded down, as Kubernetes does for ``maxUnavailable``, but one host always may:
    otherwise a small rack could never be changed.

    Args:
        max_unavailable: a number (``2`` or ``"2"``), or a percentage of the rack (``"10%"``).
        size: how many hosts the rack has.

    Raises:
        ValueError: it is neither, or out of range.
    """
    text = str(max_unavailable).strip()
    if match := _PERCENT.fullmatch(text):
        percent = int(match.group(1))
        if not 1 <= percent <= 100:
            raise ValueError(f"{text} is not 1% to 100%")
        return max(1, size * percent // 100)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is neither a number from 1 nor a percentage such as 10%")
    return int(text)


def rack_of(host: Host) -> _Rack:
    """Return side and rack of a host; hosts without a rack are one rack a side."""
    return host.site_group, host.rack


class _Budget:
    """How many more hosts of each rack the wave at hand may take out of service.

    Args:
        fleet: all hosts that make up the racks.
        targets: names of the hosts to be changed.
        max_unavailable: see ``hosts_out_of``.
        already: names of the hosts that are out of service now.
    """

    def __init__(
        self,
        fleet: Sequence[Host],
        targets: Collection[str],
        max_unavailable: int | str,
        already: Collection[str],
    ) -> None:
        self._already = frozenset(already)
        members = collections.Counter(rack_of(host) for host in fleet)
        self._limit = {rack: hosts_out_of(max_unavailable, size) for rack, size in members.items()}
        out = [host for host in fleet if host.name in self._already]
        self._others_out = collections.Counter(rack_of(host) for host in out if host.name not in targets)
        self._targets_out = collections.Counter(rack_of(host) for host in out if host.name in targets)
        self._left: dict[_Rack, int] = {}
        self._first = True
        self.next_wave()

    def next_wave(self) -> None:
        """Begin a wave: the hosts of the one before are back in service."""
        for rack, limit in self._limit.items():
            least = 1
            out = self._others_out[rack]
            if self._first and self._targets_out[rack]:
                # They are changed in this wave and cost nothing, but they are still out meanwhile.
                least, out = 0, out + self._targets_out[rack]
            self._left[rack] = max(least, limit - out)
        self._first = False

    def limit(self, rack: _Rack) -> int:
        """Return how many hosts of a rack may be out of service."""
        return self._limit[rack]

    def takes(self, host: Host, *, again: bool = False) -> bool:
        """Tell whether a host fits into the wave, and count it if so.

        Args:
            host: the host.
            again: it is not the first wave any more, so that a host out of service counts like any other.
        """
        if host.name in self._already and not again:
            return True
        rack = rack_of(host)
        if self._left[rack] < 1:
            return False
        self._left[rack] -= 1
        return True


def waves(
    hosts: Sequence[Host],
    max_unavailable: int | str,
    already_unavailable: Collection[str] = (),
    fleet: Sequence[Host] | None = None,
) -> list[list[str]]:
    """Divide hosts into waves, in which no rack has more hosts out of service than it may.

    Racks go at the same time, each at its own pace. Hosts that are out of service anyway come first and cost
    nothing; those that are out and not to be changed take away from their rack's budget, of which one host is
    always left, so that a broken neighbour does not stop everything.

    Args:
        hosts: the hosts to change, in the order wanted.
        max_unavailable: a number or a percentage of a rack, see ``hosts_out_of``.
        already_unavailable: names of hosts that are out of service now (cordoned, not Ready).
        fleet: all hosts of the racks, for the percentage; ``hosts`` by default.

    Returns:
        Names of the hosts of each wave.

    Raises:
        ValueError: ``max_unavailable`` is no such thing.
    """
    already = frozenset(already_unavailable)
    everyone = _everyone(hosts, fleet)
    budget = _Budget(everyone, {host.name for host in hosts}, max_unavailable, already)
    waiting = sorted(hosts, key=lambda host: host.name not in already)
    found: list[list[str]] = []
    while waiting:
        taken = [host for host in waiting if budget.takes(host)]
        chosen = {host.name for host in taken}
        found.append([host.name for host in taken])
        waiting = [host for host in waiting if host.name not in chosen]
        budget.next_wave()
    return found


def sizes(
    hosts: Sequence[Host],
    max_unavailable: int | str,
    already_unavailable: Collection[str] = (),
    fleet: Sequence[Host] | None = None,
) -> list[int]:
    """Cut hosts into waves without changing their order: what ``serial`` of a play needs.

    Of hosts in the order of ``waves`` it makes those very waves.

    Args:
        hosts: as ``waves``; they keep this order.
        max_unavailable: as ``waves``.
        already_unavailable: as ``waves``.
        fleet: as ``waves``.

    Returns:
        The number of hosts of each wave.
    """
    already = frozenset(already_unavailable)
    budget = _Budget(_everyone(hosts, fleet), {host.name for host in hosts}, max_unavailable, already)
    found: list[int] = []
    for host in hosts:
        if found and budget.takes(host, again=len(found) > 1):
            found[-1] += 1
            continue
        if found:
            budget.next_wave()
        budget.takes(host, again=bool(found))
        found.append(1)
    return found


def held_back(
    hosts: Sequence[Host],
    max_unavailable: int | str,
    stuck: Collection[str],
    fleet: Sequence[Host] | None = None,
) -> list[str]:
    """Return those of a wave that must wait because hosts of an earlier one got stuck.

    A host that could not be emptied keeps its place in the budget of its rack; other racks go on.

    Args:
        hosts: the wave.
        max_unavailable: as ``waves``.
        stuck: names of the hosts that got stuck.
        fleet: as ``waves``.
    """
    others = [host for host in fleet or () if host.name in stuck]
    budget = _Budget(_everyone(hosts, fleet), {host.name for host in hosts}, max_unavailable, ())
    occupied = collections.Counter(rack_of(host) for host in others)
    limits = {rack: budget.limit(rack) - occupied[rack] for rack in {rack_of(host) for host in hosts}}
    held = []
    for host in hosts:
        rack = rack_of(host)
        limits[rack] -= host.name not in stuck
        if occupied[rack] and limits[rack] < 0:
            held.append(host.name)
    return held


def _everyone(hosts: Sequence[Host], fleet: Sequence[Host] | None) -> list[Host]:
    known = {host.name for host in fleet or ()}
    return [*(fleet or ()), *(host for host in hosts if host.name not in known)]
