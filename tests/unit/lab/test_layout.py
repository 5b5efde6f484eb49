# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names and addresses: no two labs, sites or hosts share any, and all fit where they are used."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab.errors import LabError
from ironspan.lab.layout import HOSTS_PER_SITE, LABS_PER_MACHINE, Layout, check_name

layouts = st.builds(
    Layout,
    st.from_regex(r"[a-z][a-z0-9]{0,11}", fullmatch=True),
    st.integers(0, LABS_PER_MACHINE - 1),
    st.integers(1, HOSTS_PER_SITE),
    st.integers(1, HOSTS_PER_SITE),
)


def test_small_is_what_the_documentation_says() -> None:
    layout = Layout("default", 0, 3, 2)
    assert [(h.name, str(h.address)) for h in layout.hosts] == [
        ("az-1", "10.98.0.11"),
        ("az-2", "10.98.0.12"),
        ("az-3", "10.98.0.13"),
        ("rack-1", "10.98.1.11"),
        ("rack-2", "10.98.1.12"),
    ]
    assert [str(s.controller) for s in layout.sites] == ["10.98.0.1", "10.98.1.1"]
    assert [str(s.router) for s in layout.sites] == ["10.98.0.254", "10.98.1.254"]
    assert [s.bridge for s in layout.sites] == ["isa0", "isr0"]
    assert [s.namespace for s in layout.sites] == ["islab0-a", "islab0-r"]
    assert layout.api_host.name == "az-3"


@given(layouts)
def test_device_names_fit_the_kernel(layout: Layout) -> None:
    names = [host.port for host in layout.hosts]
    for site in layout.sites:
        names += [site.bridge, site.router_port]
    assert all(len(name) <= 15 for name in names)
    assert len(set(names)) == len(names)


@given(layouts)
def test_addresses_are_distinct_and_inside_their_site(layout: Layout) -> None:
    for site in layout.sites:
        used = [site.controller, site.router, *(h.address for h in layout.hosts if h.site == site)]
        assert len(set(used)) == len(used)
        assert all(address in site.network for address in used)
        assert site.network.subnet_of(IPv4Network("10.98.0.0/16"))
    azure, rack = layout.sites
    assert not azure.network.overlaps(rack.network)
    assert (azure.wan_address, azure.wan_peer) == (rack.wan_peer, rack.wan_address)
    assert layout.other(azure) == rack
    assert layout.other(rack) == azure


@given(st.integers(0, 15), st.integers(0, 15))
def test_labs_of_different_index_share_nothing(first: int, second: int) -> None:
    one, two = Layout("one", first, 2, 2), Layout("two", second, 2, 2)
    if first == second:
        return
    for mine, other in zip(one.sites, two.sites, strict=True):
        assert mine.network != other.network
        assert {mine.bridge, mine.namespace, mine.router_port}.isdisjoint(
            {other.bridge, other.namespace, other.router_port}
        )
    assert {h.machine for h in one.hosts}.isdisjoint(h.machine for h in two.hosts)
    assert one.firewall_table != two.firewall_table


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a/b", "..", "a b", "abcdefghijklm", "a\n"])
def test_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="1 to 12 lower-case letters"):
        check_name(name)


@pytest.mark.parametrize(
    ("azure", "rack", "message"),
    [(0, 1, "--azure 0"), (1, 0, "--rack 0"), (100, 1, "--azure 100"), (1, -1, "--rack -1")],
)
def test_size_out_of_range_is_refused(azure: int, rack: int, message: str) -> None:
    with pytest.raises(LabError, match=message):
        Layout("a", 0, azure, rack)


@pytest.mark.parametrize("index", [-1, 16])
def test_index_out_of_range_is_refused(index: int) -> None:
    with pytest.raises(LabError, match="index"):
        Layout("a", index, 1, 1)


def test_unknown_host_is_named_with_those_there_are() -> None:
    layout = Layout("a", 0, 1, 1)
    assert layout.host("rack-1").site.key == "rack"
    with pytest.raises(LabError, match=r"no host 'rack-2'.*az-1, rack-1"):
        layout.host("rack-2")


def test_an_estate_stands_in_the_place_of_hosts() -> None:
    layout = Layout("a", 2, 0, 1, estate=1)
    assert layout.api_address == layout.azure_site.network[10]
    with pytest.raises(LabError, match="write estate, or a number"):
        Layout("a", 2, 1, 1, estate=1)
