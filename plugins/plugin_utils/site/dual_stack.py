# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pods, services and nodes with an IPv6 address beside their IPv4 one, where the site asks for it."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

PODS, SERVICES, MASK = "site_pod_cidr_ipv6", "site_service_cidr_ipv6", "site_node_cidr_mask_ipv6"
ADDRESS = "site_address_ipv6"
TUNNEL_BYTES = 70
"""What VXLAN adds to a packet over IPv6: Ethernet 14, VXLAN 8, UDP 8, IPv6 40 (RFC 7348); over IPv4 50."""


def fixed(site: Site) -> dict[str, t.Any]:
    """Return the variables of a site with two families that its cluster is made with, none without."""
    variables: Mapping[str, t.Any] = next((host.variables for host in site.hosts.values()), {})
    if not variables.get(PODS):
        return {}
    return {name: variables[name] for name in (PODS, SERVICES, MASK)}


def addresses(host: Host) -> list[str]:
    """Return a node's addresses, IPv4 before IPv6."""
    other = host.variables.get(ADDRESS) if host.variables.get(PODS) else ""
    return [host.address, *([other] if other else [])]
