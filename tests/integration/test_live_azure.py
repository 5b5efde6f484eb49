# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An estate in a real subscription: made, found right, changed, deleted. docs/azure-live.md has its costs.

The emulated Azure is held to the same in test_azure_estate.py. It was never run by those who wrote it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import ask_estate

from tests.support import live_azure
from tests.support.estate_round import goes_round
from tests.unit.doctor.samples import site_with

pytestmark = pytest.mark.live_azure


@pytest.fixture
def live() -> Iterator[live_azure.Live]:
    """Return an estate with a budget; whatever comes of it is deleted."""
    estate = live_azure.made()
    print(
        f"\n{estate.stack} in {estate.subscription}: if this run is cut off, delete it (docs/azure-live.md)"
    )
    estate.limit()
    try:
        yield estate
    finally:
        estate.delete()
        until = time.monotonic() + 600
        while (there := estate.there()) and time.monotonic() < until:
            time.sleep(15)
        assert there == set()


def test_an_estate_goes_round(live: live_azure.Live) -> None:
    goes_round(live.run, live.there, live_azure.MACHINES)
    asked = ask_estate(site_with(live.data), lambda subscription: Deployments(live.connection, subscription))
    assert asked["state"]["changes"] == []
    assert asked["fault"] == ""
