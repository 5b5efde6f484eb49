# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The address plan and names that follow from a site, whatever its space and name."""

from __future__ import annotations

import ipaddress
import itertools

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import addresses, faults_network, names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import faults as faults_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from hypothesis import given
from hypothesis import strategies as st

from .conftest import SMALL, SUBSCRIPTION, made

SPACES = st.builds(
    lambda number, prefix: ipaddress.IPv4Network((number, prefix), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(addresses.WIDEST, addresses.NARROWEST),
)


@given(SPACES)
def test_subnets_of_any_space_lie_in_it_and_apart(space: ipaddress.IPv4Network) -> None:
    found = addresses.cut(space)
    assert all(network.subnet_of(space) for network in found.values())
    assert not any(one.overlaps(other) for one, other in itertools.combinations(found.values(), 2))
    assert found["gateway"].prefixlen <= addresses.GATEWAY_PREFIX
    assert addresses.room(found["nodes"]) > addresses.room(found["control"]) > 0


@given(SPACES, st.integers(0, 3))
def test_the_first_machines_of_a_set_can_have_their_addresses(
    space: ipaddress.IPv4Network, index: int
) -> None:
    network = addresses.cut(space)["control"]
    first = addresses.first_of_set(network, index)
    assert addresses.usable(network, first) is (first in network)


@pytest.mark.parametrize(
    ("offset", "is_usable"), [(0, False), (3, False), (4, True), (254, True), (255, False)]
)
def test_addresses_that_azure_keeps(offset: int, is_usable: bool) -> None:
    network = ipaddress.IPv4Network("10.20.0.0/24")
    assert addresses.usable(network, network.network_address + offset) is is_usable


@given(
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,40}", fullmatch=True), st.sampled_from(["backup", "weights", "x-1"])
)
def test_names_in_the_world_are_ones_that_azure_takes(site: str, what: str) -> None:
    assert fault_of(names.vault_name(site, SUBSCRIPTION, "rg"), "azure_vault") is None
    assert fault_of(names.account_name(what, site, SUBSCRIPTION, "rg"), "azure_storage_account") is None


def test_two_subscriptions_have_two_names() -> None:
    other = SUBSCRIPTION.replace("7", "8")
    assert names.vault_name("a", SUBSCRIPTION, "rg") != names.vault_name("a", other, "rg")
    assert made().vault != made(azure_subscription=other).vault


def test_a_written_subnet_is_kept() -> None:
    found = made(azure_subnets={"nodes": "10.20.4.0/22"}).subnets
    assert str(found["nodes"].network) == "10.20.4.0/22"
    assert str(found["control"].network) == "10.20.0.0/24"


def test_a_small_space_is_taken_where_its_subnets_are_written() -> None:
    subnets = {"control": "10.20.0.0/25", "nodes": "10.20.0.128/26", "endpoints": "10.20.0.192/27"}
    whole = {**subnets, "gateway": "10.20.0.224/27"}

    def faults(written: dict[str, str]) -> list[str]:
        values = {**SMALL, "azure_address_space": "10.20.0.0/24", "azure_subnets": written}
        looked = faults_of.given(values, {})
        return [what for judge in faults_network.FIRST for _, what, _ in judge(looked)]

    assert faults(whole) == []
    assert faults(subnets) == ["10.20.0.0/24 is outside /8 to /22"]


def test_the_port_of_the_endpoint_is_the_api_servers() -> None:
    looked = faults_of.given({**SMALL, "site_api_endpoint": "api.example.internal:8443"}, {})
    assert list(faults_network.api(looked)) == [
        (
            ("site_api_endpoint",),
            "port 8443 is not that of the API servers (6443)",
            "write api.example.internal:6443",
        )
    ]
