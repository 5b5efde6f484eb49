# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Addresses as texts have them, and which of them no other host reaches."""

from __future__ import annotations

import functools
import ipaddress

_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
"""RFC 1122, section 3.2.1.3: addresses of a host that does not know its own."""


@functools.lru_cache(maxsize=1 << 14)  # several checks ask for the same hosts
def parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a text is, None when it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parsed_ipv4(text: str) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a text is, None when it is none."""
    found = parsed(text)
    return found if isinstance(found, ipaddress.IPv4Address) else None


def unusable(address: ipaddress.IPv4Address | ipaddress.IPv6Address, lab: bool) -> str:
    """Return which kind of address this is that no other host reaches; empty for one that they do.

    Args:
        address: the address.
        lab: hosts on one machine, which have addresses of its loopback.
    """
    if address.is_unspecified:
        return "unspecified"
    if address.is_multicast:
        return "multicast"
    if address.is_loopback and not lab:
        return "loopback"
    if address.is_reserved or address in _THIS_NETWORK:
        return "reserved"
    return "link-local" if address.is_link_local else ""
