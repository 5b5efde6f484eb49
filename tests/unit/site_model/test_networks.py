# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sizes and overlaps of networks, against counting the networks one by one."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.endpoints import (
    mirror_problem,
    split_endpoint,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import check_cidrs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.inventory import Inventory
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import Marks
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problems
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification
from hypothesis import given
from hypothesis import strategies as st


def draft_of(hosts: int, **values: t.Any) -> Draft:
    """Return a site of workers with some variables."""
    inventory = Inventory(["inventory"], {}, {}, {}, {}, {})
    draft = Draft(inventory, load_specification(), Marks(), Problems())
    for number in range(hosts):
        name = f"h{number}"
        draft.hosts[name] = HostDraft(name, ("nodes",), {}, values)
    return draft


def said(draft: Draft) -> str:
    """Return everything that the check of networks says."""
    check_cidrs(draft)
    return "\n".join(map(str, draft.problems))


@given(st.integers(14, 30), st.integers(16, 28), st.integers(1, 40))
def test_room_for_nodes(prefix: int, mask: int, hosts: int) -> None:
    pods = ipaddress.ip_network(f"10.128.0.0/{prefix}")
    values = {"site_pod_cidr": str(pods), "site_service_cidr": "10.96.0.0/16", "site_node_cidr_mask": mask}
    text = said(draft_of(hosts, **values))
    room = 2 ** (mask - prefix) if mask >= prefix else 0
    assert ("has room for" in text) == (room < hosts)
    if room < hosts:
        wanted = int(text.rpartition("network of /")[2].split()[0])
        assert 2 ** (mask - wanted) >= hosts > 2 ** (mask - wanted) // 2


@given(st.integers(0, 255), st.integers(0, 255), st.integers(12, 24), st.integers(12, 24))
def test_overlaps(one: int, other: int, pods_prefix: int, services_prefix: int) -> None:
    pods = ipaddress.IPv4Network(f"10.{one}.0.0/{pods_prefix}", strict=False)
    services = ipaddress.IPv4Network(f"10.{other}.0.0/{services_prefix}", strict=False)
    text = said(draft_of(1, site_pod_cidr=str(pods), site_service_cidr=str(services), site_node_cidr_mask=24))
    smaller, larger = sorted((pods, services), key=lambda network: network.num_addresses)
    assert ("overlaps" in text) == smaller.subnet_of(larger)


@pytest.mark.parametrize(
    ("endpoint", "parts"),
    [
        ("api.example.com:6443", ("api.example.com", 6443)),
        ("10.0.0.1:443", ("10.0.0.1", 443)),
        ("[fd00::1]:6443", ("fd00::1", 6443)),
        ("api:0", None),
        ("api:06443", None),
        ("api:65536", None),
        ("api", None),
        (":6443", None),
        ("API:6443", None),
        ("https://api:6443", None),
        ("api:6443/x", None),
    ],
)
def test_endpoints(endpoint: str, parts: tuple[str, int] | None) -> None:
    assert split_endpoint(endpoint) == parts


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("http://mirror:8080", True),
        ("https://mirror.example.com/artefacts", True),
        ("http://10.0.0.1", True),
        ("http://[fd00::1]:80", True),
        ("mirror:8080", False),
        ("ftp://mirror", False),
        ("http://", False),
        ("http://mirror/", False),
        ("http://mirror?x=1", False),
        ("http://mirror#x", False),
        ("http://a:b@mirror", False),
        ("http://mirror:99999", False),
        ("http://mir_ror", False),
        ("http://[::1", False),
    ],
)
def test_mirrors(url: str, right: bool) -> None:
    assert (mirror_problem(url) == "") == right
