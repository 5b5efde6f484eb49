# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Routes to pods of nodes in Azure: one a node, within Azure's limits, as its resource manager takes them."""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import (
    ROUTES_OF_A_MANAGED_TABLE,
    ROUTES_OF_A_TABLE,
    Node,
    Route,
    RouteError,
    routes_of,
    template,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def nodes(count: int) -> list[Node]:
    """Return nodes with a /24 each."""
    parts = list(ipaddress.ip_network("10.240.0.0/12").subnets(new_prefix=24))
    return [
        Node(f"az-{number}", [f"10.0.{number >> 8}.{number & 255}"], [str(parts[number])])
        for number in range(count)
    ]


@settings(max_examples=20)
@given(st.permutations(nodes(12)), st.integers(0, 12))
def test_every_part_has_its_node_behind_it_whatever_the_order(made: list[Node], count: int) -> None:
    routes = routes_of(made[:count])
    assert {(route.prefix, route.next_hop) for route in routes} == {
        (node.parts[0], node.addresses[0]) for node in made[:count]
    }
    assert [route.name for route in routes] == sorted(node.name for node in made[:count])


def test_a_table_holds_what_azure_says() -> None:
    assert len(routes_of(nodes(ROUTES_OF_A_TABLE))) == 400
    with pytest.raises(
        RouteError, match=r"401 routes are needed, and a route table holds 400\. Keep the tunnel"
    ):
        routes_of(nodes(ROUTES_OF_A_TABLE + 1))
    assert len(routes_of(nodes(ROUTES_OF_A_MANAGED_TABLE), ROUTES_OF_A_MANAGED_TABLE)) == 1000


def test_two_families_are_two_routes() -> None:
    node = Node("az-1", ["10.0.0.1", "fd00::1"], ["10.244.0.0/24", "fd00:10:244::/64"])
    assert routes_of([node]) == [
        Route("az-1", "10.244.0.0/24", "10.0.0.1"),
        Route("az-1-ipv6", "fd00:10:244::/64", "fd00::1"),
    ]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ([Node("az-1", ["10.0.0.1"], [])], "az-1 has no part of the pod network yet"),
        (
            [Node("az-1", ["10.0.0.1"], ["fd00::/64"])],
            "az-1 has pods with IPv6 addresses and no such address",
        ),
        (
            [Node("az-1", ["10.0.0.1"], ["10.244.0.0/23"]), Node("az-2", ["10.0.0.2"], ["10.244.1.0/24"])],
            "az-1 and az-2 have addresses of pods in common",
        ),
    ],
)
def test_what_is_refused(made: list[Node], why: str) -> None:
    with pytest.raises(RouteError, match=why) as caught:
        routes_of(made)
    assert caught.value.remedy


def test_the_template() -> None:
    made = template("lab-pods", "westeurope", routes_of(nodes(1)), {"ironspan-site": "lab"})
    assert made["resources"] == [
        {
            "type": "Microsoft.Network/routeTables",
            "apiVersion": "2026-03-01",
            "name": "lab-pods",
            "location": "westeurope",
            "tags": {"ironspan-site": "lab"},
            "properties": {
                "disableBgpRoutePropagation": False,
                "routes": [
                    {
                        "name": "az-0",
                        "properties": {
                            "addressPrefix": "10.240.0.0/24",
                            "nextHopType": "VirtualAppliance",
                            "nextHopIpAddress": "10.0.0.0",
                        },
                    }
                ],
            },
        }
    ]


@pytest.mark.parametrize(
    ("table", "location"), [("", "westeurope"), ("-x", "westeurope"), ("x" * 81, "a"), ("x", "West Europe")]
)
def test_names_that_azure_does_not_take(table: str, location: str) -> None:
    with pytest.raises(RouteError):
        template(table, location, [], {})
