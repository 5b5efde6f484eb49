# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which host of the lab a virtual machine is."""

from __future__ import annotations

from typing import Any

import pytest

from ironspan.lab.azure.machine_hosts import lab_host
from ironspan.lab.errors import LabError
from ironspan.lab.layout import Layout

LAYOUT = Layout("estate", 3, 1, 1)
NETWORK = LAYOUT.azure_site.network


def machine(**changes: Any) -> dict[str, Any]:
    return {"name": "pool_1", "computer": "control-plane-1", "address": str(NETWORK[40]), **changes}


def test_a_machine_is_a_host_of_the_azure_side() -> None:
    found = lab_host(LAYOUT, machine())
    assert (found.name, found.address, found.site.key) == ("control-plane-1", NETWORK[40], "azure")
    # An interface's name has room for 15 characters.
    assert len(found.port) <= 15
    assert lab_host(LAYOUT, machine(address=str(NETWORK[41]))).machine != found.machine


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": ""},
        {"address": "10.1.0.4"},
        {"address": str(NETWORK[1])},
        {"address": str(NETWORK[253])},
        {"address": str(LAYOUT.host("az-1").address)},
        {"address": str(LAYOUT.rack_site.network[40])},
        {"computer": "az-1"},
    ],
)
def test_a_machine_that_the_lab_has_no_room_for(wrong: dict[str, str]) -> None:
    with pytest.raises(LabError, match="virtual machine"):
        lab_host(LAYOUT, machine(**wrong))
