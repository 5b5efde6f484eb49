# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what a site lets its pods reach, one each."""

from __future__ import annotations

import dataclasses
import datetime

from .mutations import ALL, Mutation

SOON = str(datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=30))
FAR = str(datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=500))
ENTRY = f"""
egress_enabled: true
egress_resolvers: [10.0.0.53]
egress_allow:
  - destination: 203.0.113.0/24
    ports: [443, 8000-8100]
    owner: storage team
    reason: data sets
    expires: "{SOON}"
"""
NODES = ENTRY + "egress_node_networks: [10.20.0.0/24]\negress_node_ports: [10250]\n"
_TO = "destination: 203.0.113.0/24"
_PORTS = "ports: [443, 8000-8100]"
_EXPIRES = f'expires: "{SOON}"'


def wrong(name: str, old: str, new: str, says: str, at: str = "", text: str = ENTRY) -> Mutation:
    """Return a mistake: ``old`` is ``new`` in a text that is right and added to the inventory."""
    assert old in text, name
    where = at or next(line.strip() for line in new.splitlines() if line.strip())
    return Mutation(f"egress: {name}", ((ALL, "", text.replace(old, new, 1)),), ALL, where, says)


def to(name: str, destination: str, says: str) -> Mutation:
    """Return a mistake in the destination of an entry."""
    return wrong(name, _TO, f'destination: "{destination}"', says)


_PROXY = f"""
egress_allow:
  - destination: pypi.example.com
    through: proxy
    ports: [443]
    owner: build team
    reason: packages
    expires: "{SOON}"
"""
_SPACES = """
egress_namespaces:
  - name: team-a
    within: true
  - name: team-b
"""


def proxied(name: str, destination: str, says: str) -> Mutation:
    """Return a mistake in the name of an entry for the proxy."""
    made = wrong(name, "pypi.example.com", f'"{destination}"', says, text=_PROXY)
    return dataclasses.replace(made, problems=2)  # and no host is a proxy


EGRESS = (
    wrong("no proxy", "ports: [443]", "ports: [444]", "no host is in the group", "through: proxy", _PROXY),
    dataclasses.replace(
        wrong("udp", "    ports:", "    protocol: udp\n    ports:", "no proxy passes on", text=_PROXY),
        problems=2,
    ),
    proxied("an address through the proxy", "203.0.113.9", "is no DNS name"),
    proxied("a whole top-level domain", "*.com", "too wide: it means a whole top-level domain"),
    proxied("names of anybody", "*.blob.core.windows.net", "anybody can have a name in blob.core"),
    proxied("names of anybody and more", "*.core.windows.net", "anybody can have a name in"),
    proxied("names of anybody in a region", "*.s3.eu-west-1.amazonaws.com", "in amazonaws.com"),
    proxied("a star in the middle", "a.*.example.com", "is no DNS name"),
    wrong("a namespace of the system", "name: team-a", "name: kube-system", "the system's own", text=_SPACES),
    wrong("no namespace", "name: team-a", "name: Team_A", "is no name of a namespace", text=_SPACES),
    wrong("an unknown namespace", "    reason:", "    namespaces: [x]\n    reason:", "x is not in egress_"),
    wrong(
        "an image without its digest",
        "egress_enabled: true",
        "egress_policy_image: example.org/netpol:v1",
        "no image with its registry and its digest",
    ),
    wrong("no owner", "    owner: storage team\n", "", "owner: is missing", at=_TO),
    wrong("no reason", "    reason: data sets\n", "", "reason: is missing", at=_TO),
    wrong("no last day", f"    {_EXPIRES}\n", "", "expires: is missing", at=_TO),
    wrong("no ports", f"    {_PORTS}\n", "", "ports: is missing", at=_TO),
    wrong("unknown field", "reason:", "resaon: x\n    reason:", "unknown key; write reason", at="resaon: x"),
    wrong("empty owner", "owner: storage team", 'owner: " "', "is no single line"),
    wrong("quotes in a reason", "reason: data sets", 'reason: a "b"', "is no single line"),
    wrong("two lines in a reason", "reason: data sets", 'reason: "a\\nb"', "is no single line"),
    to("a wildcard", "*.example.com", "has a wildcard"),
    to("everything", "0.0.0.0/0", "wider than a /8"),
    to("half of everything", "128.0.0.0/1", "wider than a /8"),
    to("IPv6", "2001:db8::/32", "is IPv6"),
    to("bits behind the prefix", "203.0.113.1/24", "write 203.0.113.0/24"),
    to("no network", "203.0.113.0/33", "is no network"),
    to("no name", "proxy", "is neither a network nor a DNS name"),
    to("a name that is not there", "missing.example.com", "has no IPv4 address"),
    to(
        "a name of a pod's address",
        "pod.example.com",
        "pod.example.com (10.244.3.4/32) overlaps site_pod_cidr",
    ),
    to("loopback", "127.0.0.1", "is no network that packets are sent to"),
    to("multicast", "224.0.0.0/8", "is no network that packets are sent to"),
    to("metadata", "169.254.169.254", "hands out credentials"),
    to("wire server", "168.63.129.16/32", "hands out credentials"),
    to("services", "10.96.0.0/24", "overlaps site_service_cidr"),
    to("hosts", "10.20.0.0/24", "holds host az-1 (10.20.0.11)"),
    wrong("ports of a resolver", _PORTS, "ports: [53, 853]", "write the resolver into egress_resolvers"),
    wrong("no port at all", _PORTS, "ports: []", "is empty"),
    wrong("port 0", _PORTS, "ports: [0]", "0 is neither a port"),
    wrong("ports backwards", _PORTS, "ports: [8100-8000]", "is neither a port"),
    wrong("port as a word", _PORTS, "ports: [https]", "'https' is neither a port"),
    wrong("protocol", _PORTS, f"protocol: icmp\n    {_PORTS}", "is not one of tcp, udp", at="protocol: icmp"),
    wrong("no date", _EXPIRES, 'expires: "next year"', "is no date"),
    wrong("no day of the calendar", _EXPIRES, 'expires: "2027-02-30"', "is no date"),
    wrong("for ever", _EXPIRES, f'expires: "{FAR}"', "more than 400 days away"),
    wrong("a name as a resolver", "[10.0.0.53]", "[dns.example.com]", "is no IPv4 address", "[dns.example"),
    wrong("port of hosts", "[10250]", "[70000]", "70000 is neither", "[70000]", NODES),
    wrong("networks of hosts", "[10.20.0.0/24]", "[10.20.0.1/24]", "write 10.20.0.0/24", "[10.20", NODES),
    wrong(
        "ports without networks",
        "egress_node_networks: [10.20.0.0/24]\n",
        "",
        "egress_node_networks: is empty",
        "egress_node_ports",
        NODES,
    ),
    wrong(
        "another tunnel",
        "egress_resolvers:",
        "egress_overlay_interfaces: [flannel.2]\negress_resolvers:",
        "write [flannel.1]",
        at="egress_overlay_interfaces",
    ),
    wrong(
        "no pod interface",
        "egress_resolvers:",
        "egress_pod_interfaces: []\negress_resolvers:",
        "pods could use any source",
        at="egress_pod_interfaces",
    ),
    wrong(
        "interface",
        "egress_resolvers:",
        "egress_overlay_interfaces: ['a b']\negress_resolvers:",
        "is no name of an interface",
        at="egress_overlay_interfaces",
    ),
)
