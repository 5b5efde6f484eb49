# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The BMCs of servers that are expected, and one thing done with many of them at a time."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import PORT, Endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import Place, Visit, enter, visit
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import FactoryAccounts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Keeper
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import AT_ONCE


def place_of(server: ExpectedServer, factory: FactoryAccounts, port: int = PORT) -> Place:
    """Return the place of a server's BMC."""
    endpoint = Endpoint(server.name, server.bmc_address, port)
    return Place(endpoint, server.serial, server.slot, factory.of(server.serial))


def with_each[T](
    places: Sequence[Place], keeper: Keeper, do: Callable[[Bmc], T], opened: Visit = visit
) -> dict[str, T | ActionableError]:
    """Do one thing with many BMCs at a time; one that fails ends no other.

    Args:
        places: the BMCs. A server that is not the expected one is left alone.
        keeper: where their accounts are.
        do: what to do.
        opened: opens a BMC.

    Returns:
        By name of the server: what ``do`` returned, or the error.
    """

    def one(place: Place) -> T | ActionableError:
        try:
            with enter(place, keeper, opened).bmc as bmc:
                return do(bmc)
        except ActionableError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(max(1, min(AT_ONCE, len(places)))) as pool:
        return dict(zip((place.endpoint.name for place in places), pool.map(one, places), strict=True))
