# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The data plane of an estate in a lab: what its load balancers, private endpoints and zones do for hosts.

It follows the resource manager: what is deployed works a moment later, what is deleted stops.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

from ironspan.lab import names
from ironspan.lab.azure import http
from ironspan.lab.azure.arm import reach
from ironspan.lab.azure.arm.state import State
from ironspan.lab.azure.balancer import Balancer
from ironspan.lab.azure.http import Handler
from ironspan.lab.commands import run
from ironspan.lab.errors import LabError
from ironspan.lab.network import LAN

_HTTPS = 443


class Plane:
    """Brings addresses, listeners and names of a lab to what its estate declares."""

    def __init__(self, state: State, lab: Path, private: Handler, tls: ssl.SSLContext) -> None:
        """Keep what it is made of.

        Args:
            state: The resource manager's.
            lab: The lab's folder.
            private: What listens where private endpoints are.
            tls: Its certificate.
        """
        self._state = state
        self._lab = lab
        self._private = private
        self._tls = tls
        self._balancers: dict[tuple[str, int], Balancer] = {}
        self._endpoints: dict[str, asyncio.Server] = {}
        self._names: dict[str, str] | None = None

    async def follow(self) -> None:
        """Do what has changed; called now and then."""
        try:
            await self._follow_balancers(
                {(one.address, one.port): one for one in reach.balances(self._state)}
            )
            await self._follow_endpoints(set(reach.endpoints(self._state)))
            wanted = reach.names(self._state)
            if wanted != self._names:
                names.write_zones(self._lab, wanted)
                self._names = wanted
        except (LabError, OSError) as error:  # the next look tries again
            print(f"data plane: {error}", file=sys.stderr, flush=True)

    async def _follow_balancers(self, wanted: dict[tuple[str, int], reach.Balance]) -> None:
        for where, one in list(self._balancers.items()):
            if where not in wanted or wanted[where].probe != one.rule.probe:
                self._balancers.pop(where).close()
                self._give_back(where[0])
            elif wanted[where] != one.rule:
                one.follow(wanted[where])
        for where in wanted.keys() - self._balancers.keys():
            _take(where[0])
            balancer = Balancer(wanted[where])
            await balancer.start()
            self._balancers[where] = balancer

    async def _follow_endpoints(self, wanted: set[str]) -> None:
        for gone in self._endpoints.keys() - wanted:
            self._endpoints.pop(gone).close()
            self._give_back(gone)
        for new in wanted - self._endpoints.keys():
            _take(new)
            self._endpoints[new], _ = await http.listen(self._private, new, _HTTPS, self._tls)

    def _give_back(self, address: str) -> None:
        if address not in {*self._endpoints, *(one for one, _ in self._balancers)}:
            run(["ip", "address", "delete", f"{address}/32", "dev", LAN])


def _take(address: str) -> None:
    """Let the router of the Azure side, in whose network namespace this runs, answer for an address."""
    run(["ip", "address", "replace", f"{address}/32", "dev", LAN])
