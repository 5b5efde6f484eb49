# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is said of a host's table against the table itself, as roles/egress renders it."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import Connection, Endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.node_table import (
    NodeTable,
    proxy_rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Proxied
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import egress_table, nft_reading

PLANES, PROXIES, RESOLVERS = ("10.98.0.11", "10.98.0.12"), ("10.98.0.20",), ("10.0.0.53",)
NODES, NODE_PORTS = ("10.98.0.0/24", "10.98.1.0/24"), ("9100-9110", "10250")
CACHE, OWN, BRIDGE, POD = "169.254.20.10", "10.98.1.11", "10.244.1.1", "10.244.1.7"
SOON = 1_800_000_000
ALLOWED = (
    egress_table.entry("203.0.113.0/24", ports=("443", "8000-8010")),
    egress_table.entry("198.51.100.7/32", ports=("53", "123"), protocol="udp"),
    egress_table.entry("192.0.2.0/24", ports=("443",), until=SOON),
)
TABLE = NodeTable(
    egress=Egress(ALLOWED, NODES, NODE_PORTS),
    pod_network=ipaddress.ip_network("10.244.0.0/16"),
    node_parts=(ipaddress.ip_network("10.244.0.0/24"), ipaddress.ip_network("10.244.1.0/24")),
    local=frozenset(map(ipaddress.ip_address, (OWN, BRIDGE))),
    planes=frozenset(map(ipaddress.ip_address, PLANES)),
    proxies=frozenset(map(ipaddress.ip_address, PROXIES)),
    resolvers=frozenset(map(ipaddress.ip_address, (*RESOLVERS, CACHE))),
    now=SOON - 1,
)
SOURCE = Endpoint("a/p", (ipaddress.ip_address(POD),), namespace="a", node="rack-1")
ADDRESSES = (
    *PLANES, *PROXIES, *RESOLVERS, CACHE, OWN, BRIDGE, "10.98.1.12", "10.244.0.9", "10.244.7.9",
    "203.0.113.9", "198.51.100.7", "192.0.2.5", "8.8.8.8", "169.254.169.254", "168.63.129.16",
    "2001:db8::1", "fd00:ec2::254",
)  # fmt: skip
PORTS = (22, 53, 80, 123, 443, 853, 3128, 6443, 8005, 9105, 10250)


@functools.cache
def rendered() -> str:
    """Return the table that a host with these settings gets."""
    return egress_table.table(
        ALLOWED,
        planes=PLANES,
        proxies=PROXIES,
        resolvers=RESOLVERS,
        node_networks=NODES,
        node_ports=NODE_PORTS,
        node_cache=True,
    )


def way(address: str, protocol: str = "TCP", port: int = 443) -> Connection:
    """Return a connection of a pod on rack-1."""
    there = ipaddress.ip_address(address)
    return Connection(SOURCE, Endpoint(address, (there,)), there, protocol, port)


def by_the_table(asked: Connection, now: float) -> str:
    """Return what the rendered rules do: accept, or the name of the drop."""
    address = str(asked.address)
    known = any(asked.address in part for part in TABLE.node_parts)
    packet = nft_reading.Packet(
        POD, address, asked.protocol.lower(), asked.port, "cni0" if known else "eth0", int(now)
    )
    local = asked.address in TABLE.local or address == CACHE
    return nft_reading.verdict(rendered(), "input" if local else "forward", packet)


@settings(max_examples=30)
@given(
    st.sampled_from(ADDRESSES),
    st.sampled_from(["TCP", "UDP", "SCTP"]),
    st.sampled_from(PORTS),
    st.sampled_from([SOON - 1, SOON]),
)
def test_as_the_rendered_rules_do(address: str, protocol: str, port: int, now: int) -> None:
    asked = way(address, protocol, port)
    said = dataclasses.replace(TABLE, now=now).judge(asked)
    assert said is not None
    done = by_the_table(asked, now)
    assert said.allowed == (done == "accept"), (said, done)
    if not said.allowed and asked.address.version == 4:
        assert said.rule.endswith(f"({done})")


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (way("203.0.113.9"), "egress_allow: 203.0.113.0/24 tcp 443,8000-8010 (somebody: a test)"),
        (way(OWN, port=22), "its own host, but for what egress_node_ports opens (host)"),
        (way("10.98.1.12", port=10250), "egress_node_ports"),
        (way("10.244.0.9"), "pods reach each other"),
        (way("169.254.169.254", port=80), "metadata of a cloud, which no entry opens (metadata)"),
    ],
)
def test_the_rule_that_decides_is_named(asked: Connection, rule: str) -> None:
    said = TABLE.judge(asked)
    assert said is not None
    assert said.rule == rule


def test_a_pod_with_its_hosts_network_is_the_host() -> None:
    host = dataclasses.replace(SOURCE, host_network=True)
    assert TABLE.judge(dataclasses.replace(way("8.8.8.8"), source=host)) is None


@pytest.mark.parametrize(
    ("entry", "name", "port", "allowed"),
    [
        ("pypi.example.com", "pypi.example.com", 443, True),
        ("pypi.example.com", "a.pypi.example.com", 443, False),
        ("pypi.example.com", "pypi.example.com", 80, False),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, True),
        ("*.example.com", "badexample.com", 443, False),
    ],
)
def test_the_proxy_compares_names_as_squid_does(entry: str, name: str, port: int, allowed: bool) -> None:
    listed = [Proxied(entry, ("443",), SOON, "somebody", "a test")]
    said = proxy_rule(listed, name, port, SOON - 1)
    assert said.allowed is allowed
    assert proxy_rule(listed, name, port, SOON).allowed is False
    assert not allowed or said.rule == f"egress_allow: {entry} 443 (somebody: a test)"


def test_the_reader_knows_every_word() -> None:
    with pytest.raises(AssertionError):
        nft_reading.verdict(
            rendered().replace("goto drop_outside", "queue to 1"),
            "forward",
            nft_reading.Packet(POD, "8.8.8.8", "tcp", 443, "eth0", 0),
        )


def test_the_reader_tells_a_rule_that_went() -> None:
    without = "\n".join(line for line in rendered().splitlines() if "jump names" not in line)
    packet = nft_reading.Packet(POD, "169.254.169.254", "tcp", 80, "eth0", 0)
    assert nft_reading.verdict(rendered(), "forward", packet) == "metadata"
    assert nft_reading.verdict(without, "forward", packet) == "outside"
