# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Caches for names have an address that nothing else uses, and ask resolvers that have addresses."""

from __future__ import annotations

import ipaddress

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    of_cluster,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import METADATA
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed_ipv4, unusable

ADDRESS, RESOLVERS = "dns_node_cache_address", "dns_resolvers"
LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")


def check_address(draft: Draft) -> None:
    """The cache's address is one that never leaves a host, and not where a cloud hands out credentials."""
    text = draft.site_value(ADDRESS)
    if text is None:
        return
    place = draft.site_place(ADDRESS)
    remedy = f"write for example {draft.specification.defaults.get(ADDRESS)}"
    address = parsed_ipv4(str(text))
    if address is None:
        draft.problems.add(place, ADDRESS, f"{text!r} is no IPv4 address", remedy)
        return
    if address not in LINK_LOCAL or address in (LINK_LOCAL[0], LINK_LOCAL[-1]):
        draft.problems.add(place, ADDRESS, f"{address} is no link-local address ({LINK_LOCAL})", remedy)
    elif address in ipaddress.IPv4Network("169.254.169.254/32") or str(address) in METADATA:
        draft.problems.add(place, ADDRESS, f"{address} is where a cloud hands out credentials", remedy)


def check_resolvers(draft: Draft) -> None:
    """Resolvers are addresses outside the cluster: one inside would ask the cache again."""
    for host in draft.hosts.values():
        for index, text in enumerate(host.values.get(RESOLVERS) or ()):
            message = _wrong(draft, str(text), host)
            if message:
                draft.problems.add(
                    draft.inner_place(host, RESOLVERS, index),
                    f"{RESOLVERS}[{index}]",
                    message,
                    "write that of a resolver outside the cluster, such as 10.0.0.53",
                )


def _wrong(draft: Draft, text: str, host: HostDraft) -> str:
    address = parsed_ipv4(text)
    if address is None:
        return f"{text!r} is no IPv4 address"
    if text == host.values.get(ADDRESS):
        return f"{text} is the cache itself"
    if kind := unusable(address, bool(host.values.get("site_lab"))):
        return f"{text} is a {kind} address"
    return of_cluster(draft, address)


CHECKS = (check_address, check_resolvers)
