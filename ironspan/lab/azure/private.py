# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where private endpoints of an estate lead: to what each was made for, and to nothing else."""

from __future__ import annotations

from ironspan.lab.azure.arm import reach
from ironspan.lab.azure.arm.state import State
from ironspan.lab.azure.http import Handler, Request, Response

_VAULTS = ".vault.azure.net"


class Private:
    """What listens at the addresses of private endpoints.

    Args:
        state: The resource manager's.
        store: Accounts.
        vaults: Vaults.
        anywhere: It listens at one address in the place of all: tests on loopback have no others.
    """

    def __init__(self, state: State, store: Handler, vaults: Handler, *, anywhere: bool = False) -> None:
        self._state = state
        self._store = store
        self._vaults = vaults
        self._anywhere = anywhere

    async def __call__(self, request: Request) -> Response:
        """Answer one request; who it is for is told by its Host header, as TLS and Azure do it."""
        doors = reach.endpoints(self._state)
        chosen = doors.values() if self._anywhere else [doors.get(request.local, frozenset())]
        request.private = frozenset().union(*chosen)
        host = request.headers.get("host", "").partition(":")[0].lower()
        return await (self._vaults if host.endswith(_VAULTS) else self._store)(request)
