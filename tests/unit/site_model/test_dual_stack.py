# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sites of two address families: what is refused before anything is touched."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import dual_stack
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.site_model.test_networks import draft_of

GOOD: dict[str, t.Any] = {
    "site_pod_cidr_ipv6": "fd00:10:244::/48",
    "site_service_cidr_ipv6": "fd00:10:96::/108",
    "site_node_cidr_mask_ipv6": 64,
    "site_wan_mtu": 1400,
    "site_cni": "flannel",
    "egress_enabled": False,
}


def draft(hosts: int = 2, addresses: t.Sequence[str] = (), **changes: t.Any) -> Draft:
    """Return a site of workers with IPv6 addresses of their own."""
    made = draft_of(hosts, **{**GOOD, **changes})
    for number, (name, host) in enumerate(made.hosts.items()):
        own = addresses[number] if addresses else f"2001:db8::{number + 1:x}"
        made.hosts[name] = HostDraft(name, host.groups, {}, {**host.values, "site_address_ipv6": own})
    return made


def said(made: Draft) -> list[str]:
    """Return what the check says."""
    dual_stack.check(made)
    return list(map(str, made.problems))


def test_a_good_site_has_no_problem() -> None:
    assert said(draft()) == []
    assert said(draft_of(2, site_pod_cidr_ipv6="", site_service_cidr_ipv6="", egress_enabled=True)) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"site_service_cidr_ipv6": ""},
            "site_service_cidr_ipv6: is empty, and site_pod_cidr_ipv6 is not",
        ),
        ({"site_pod_cidr_ipv6": ""}, "site_pod_cidr_ipv6: is empty"),
        ({"site_pod_cidr_ipv6": "10.0.0.0/8"}, "'10.0.0.0/8' is no IPv6 network"),
        ({"site_pod_cidr_ipv6": "fd00::1/48"}, "'fd00::1/48' is no IPv6 network"),
        ({"site_pod_cidr_ipv6": "fe80::/48"}, "is not for hosts of a network"),
        ({"site_service_cidr_ipv6": "fd00:10:96::/64"}, "is outside /108 to /124"),
        ({"site_service_cidr_ipv6": "fd00:10:244::/112"}, "overlaps the pod network"),
        ({"site_pod_cidr_ipv6": "fd00::/40"}, "over 16 bits wider than a node's /64"),
        ({"site_pod_cidr_ipv6": "fd00::/64"}, "has room for 1 nodes with a /64 each"),
        ({"site_planned_nodes": 70000}, "has room for 65536 nodes"),
        ({"egress_enabled": True}, "drop all IPv6 that pods send"),
        ({"site_cni": "cilium"}, "only flannel is set up for two address families"),
        ({"site_wan_mtu": 1349}, "leaves 1279, and IPv6 needs 1280"),
        ({"addresses": ["2001:db8::1", ""]}, "hosts.h1.site_address_ipv6: is empty"),
        ({"addresses": ["2001:db8::1", "2001:db8:0::1"]}, "2001:db8::1 is the address of host h0 too"),
        ({"addresses": ["2001:db8::1", "fe80::1"]}, "fe80::1 is reached by no other host"),
        ({"addresses": ["2001:db8::1", "10.0.0.1"]}, "'10.0.0.1' is no IPv6 address"),
        ({"addresses": ["2001:db8::1", "fd00:10:244:1::1"]}, "lies in site_pod_cidr_ipv6"),
    ],
)
def test_what_is_refused(changes: dict[str, t.Any], why: str) -> None:
    problems = said(draft(**changes))
    assert len(problems) == 1, problems
    assert why in problems[0]


@settings(max_examples=30)
@given(st.integers(44, 70), st.integers(64, 80), st.integers(1, 20))
def test_room_for_nodes(prefix: int, mask: int, hosts: int) -> None:
    pods = ipaddress.ip_network(f"fd00::/{prefix}")
    text = "\n".join(said(draft(hosts, site_pod_cidr_ipv6=str(pods), site_node_cidr_mask_ipv6=mask)))
    bits = mask - prefix
    assert ("bits wider" in text) == (bits > 16)
    assert ("has room for" in text) == (bits < 0 or 2**bits < hosts)
