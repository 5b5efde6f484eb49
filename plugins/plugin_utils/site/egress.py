# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pods may reach outside the cluster: entries of ``egress_allow`` as typed values.

Every function that reads what an operator wrote raises ``Rejected`` with what is wrong and what to write.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import ipaddress
import re
import socket
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import (
    Namespace,
    Proxied,
    proxied_name,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

METADATA = (
    "169.254.0.0/16",  # link-local: Azure, AWS and Google at 169.254.169.254, AWS ECS at 169.254.170.2
    "168.63.129.16/32",  # Azure's wire server (Microsoft Learn: "What is IP address 168.63.129.16?")
    "100.100.100.200/32",  # Alibaba Cloud
    "192.0.0.192/32",  # Oracle Cloud
)
"""Where clouds hand credentials and settings to whoever asks."""
METADATA_IPV6 = "fd00:ec2::254"
RESOLVER_PORTS = (53, 853)
"""DNS, and DNS over TLS or QUIC (RFC 1035, RFC 7858, RFC 9250)."""
PROXY = "proxy"
WIDEST_PREFIX = 8
"""The largest private network is a /8 (RFC 1918); whatever is wider is close to everything."""
LONGEST_DAYS = 400
"""Every entry is looked at about once a year."""
_NAME = re.compile(r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]", re.I)
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_ONE_LINE = re.compile(r'[^"\x00-\x1f\x7f]{1,100}')


@dataclasses.dataclass(frozen=True, slots=True)
class Allowed:
    """One thing outside the cluster that pods may reach.

    Args:
        destination: what the inventory says, a network, an address or a name.
        networks: the networks it stands for, in order.
        protocol: ``tcp`` or ``udp``.
        ports: single ports and ranges, as nft writes them.
        until: Unix time in seconds from which on it no longer holds.
        owner: who answers for it.
        reason: what it is for.
        namespaces: whose network policies open it; none stands for all that have some.
    """

    destination: str
    networks: tuple[str, ...]
    protocol: str
    ports: tuple[str, ...]
    until: int
    owner: str
    reason: str
    namespaces: tuple[str, ...] = ()

    @property
    def by_name(self) -> bool:
        """Tell whether it is a name, which Cilium follows wherever its addresses go."""
        return is_name(self.destination)


@dataclasses.dataclass(frozen=True, slots=True)
class Egress:
    """What the table of a host is rendered from.

    Args:
        allowed: what pods may reach outside the cluster.
        node_networks: networks of the hosts, none within another.
        node_ports: TCP ports of hosts that pods may reach, single ones and ranges, none within another.
        metadata: networks that no entry opens.
        metadata_ipv6: the same for IPv6, counted with them.
        resolver_ports: ports that no entry opens.
        proxied: what pods may reach through the proxy.
        namespaces: those that have network policies.
    """

    allowed: tuple[Allowed, ...] = ()
    node_networks: tuple[str, ...] = ()
    node_ports: tuple[str, ...] = ()
    metadata: tuple[str, ...] = METADATA
    metadata_ipv6: str = METADATA_IPV6
    resolver_ports: tuple[int, ...] = RESOLVER_PORTS
    proxied: tuple[Proxied, ...] = ()
    namespaces: tuple[Namespace, ...] = ()

    def open_to(self, namespace: str) -> list[Allowed]:
        """Return the entries that a namespace's network policies open."""
        return [each for each in self.allowed if not each.namespaces or namespace in each.namespaces]


def network_of(text: str) -> ipaddress.IPv4Network:
    """Return a network or an address as a network.

    Raises:
        Rejected: it is none, is IPv6, or is wider than ``WIDEST_PREFIX``.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        try:
            better = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise Rejected(f"{text!r} is no network", "write for example 203.0.113.0/24") from None
        raise Rejected(f"{text} has bits set behind its prefix", f"write {better}") from None
    if not isinstance(network, ipaddress.IPv4Network):
        raise Rejected(f"{text} is IPv6, and pods have IPv4 addresses only", "write an IPv4 network")
    if network.prefixlen < WIDEST_PREFIX:
        raise Rejected(
            f"{text} is wider than a /{WIDEST_PREFIX}, close to everything",
            "write the networks that are needed",
        )
    return network


def is_name(destination: str) -> bool:
    """Tell whether a destination is a name rather than a network or an address."""
    return not re.fullmatch(r"[0-9./]+|.*:.*", destination)


def networks_of(destination: str) -> tuple[ipaddress.IPv4Network, ...]:
    """Return the networks of a destination; a name is resolved here, on the controller, once a process.

    Raises:
        Rejected: it is neither a network nor a name, or the name has no IPv4 address.
    """
    if not is_name(destination):
        return (network_of(destination),)
    if "*" in destination:
        raise Rejected(
            f"{destination!r} has a wildcard, which no resolver can turn into addresses",
            "write every name or the networks behind them, or `through: proxy`",
        )
    if not _NAME.fullmatch(destination):
        raise Rejected(
            f"{destination!r} is neither a network nor a DNS name", "write for example 10.9.0.0/24"
        )
    return tuple(ipaddress.IPv4Network(address) for address in _resolve(destination.lower()))


@functools.lru_cache(maxsize=4096)
def _resolve(name: str) -> tuple[str, ...]:
    try:
        # With the dot at its end no search domain of the controller is tried.
        found = socket.getaddrinfo(f"{name}.", None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise Rejected(
            f"{name} has no IPv4 address that this machine can find ({error.strerror or error})",
            "correct the name, or write its network",
        ) from error
    return tuple(str(address) for address in sorted({ipaddress.IPv4Address(each[4][0]) for each in found}))


def port_range(value: t.Any) -> tuple[int, int]:
    """Return the first and the last port of a port or a range such as ``8000-8100``.

    Raises:
        Rejected: it is neither.
    """
    match = _PORTS.fullmatch(str(value)) if isinstance(value, int | str) else None
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if isinstance(value, bool) or not 1 <= first <= last <= 65_535:
        raise Rejected(
            f"{value!r} is neither a port nor a range of ports", "write for example 443, or 8000-8100"
        )
    return first, last


def port_ranges(values: Iterable[t.Any]) -> list[tuple[int, int]]:
    """Return ports and ranges in order, those that overlap or touch as one.

    Raises:
        Rejected: one of them is neither a port nor a range.
    """
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(port_range(value) for value in values):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return ranges


def merged(ports: Iterable[t.Any]) -> tuple[str, ...]:
    """Return ports and ranges as nft writes them, none within another, which it would refuse.

    Raises:
        Rejected: one of them is neither a port nor a range.
    """
    return tuple(str(low) if low == high else f"{low}-{high}" for low, high in port_ranges(ports))


def collapsed(networks: Iterable[ipaddress.IPv4Network | str]) -> tuple[str, ...]:
    """Return networks in order, none within another, which nft would refuse."""
    return tuple(str(each) for each in ipaddress.collapse_addresses(map(ipaddress.IPv4Network, networks)))


def until(expires: str, today: datetime.date | None = None) -> int:
    """Return the Unix time at which the day after ``expires`` begins (UTC).

    Args:
        expires: the last day, such as 2027-03-31.
        today: the day in UTC, for which an end too far away is judged; the current one by default.

    Raises:
        Rejected: it is no date, or further away than ``LONGEST_DAYS``.
    """
    try:
        if len(expires) != len("2027-03-31"):
            raise ValueError(expires)
        last = datetime.date.fromisoformat(expires)
    except ValueError:
        raise Rejected(
            f"{expires!r} is no date", 'write the last day in quotes, for example "2027-03-31"'
        ) from None
    latest = (today or _today()) + datetime.timedelta(days=LONGEST_DAYS)
    if last > latest:
        raise Rejected(f"{expires} is more than {LONGEST_DAYS} days away", f'write at most "{latest}"')
    midnight = datetime.datetime.combine(last, datetime.time(), datetime.UTC) + datetime.timedelta(days=1)
    return int(midnight.timestamp())


def one_line(text: str) -> str:
    """Return a text that may stand in a comment of the table.

    Raises:
        Rejected: it is empty, longer than 100 characters, or has quotes or several lines.
    """
    if not _ONE_LINE.fullmatch(text) or not text.strip():
        raise Rejected("is no single line of at most 100 characters without quotes", "write it shorter")
    return text


def has_ended(expires: str, now: float | None = None) -> bool:
    """Tell whether an entry's last day is over (UTC).

    Raises:
        Rejected: it is no date.
    """
    return until(expires) <= (datetime.datetime.now(datetime.UTC).timestamp() if now is None else now)


def allowed_of(entries: Iterable[Mapping[str, t.Any]], resolve: bool = True) -> tuple[Allowed, ...]:
    """Return the entries that have not ended.

    Args:
        entries: the value of ``egress_allow``, which passed every check.
        resolve: look names up; without it they stand for no networks.
    """
    return tuple(
        Allowed(
            destination=entry["destination"],
            networks=collapsed(networks_of(entry["destination"]))
            if resolve or not is_name(entry["destination"])
            else (),
            protocol=entry.get("protocol") or "tcp",
            ports=merged(entry["ports"]),
            until=until(entry["expires"]),
            owner=one_line(entry["owner"]),
            reason=one_line(entry["reason"]),
            namespaces=tuple(entry.get("namespaces") or ()),
        )
        for entry in entries
        if entry.get("through") != PROXY and not has_ended(entry["expires"])
    )


def proxied_of(entries: Iterable[Mapping[str, t.Any]]) -> tuple[Proxied, ...]:
    """Return the entries for the proxy that have not ended; their names are looked up by the proxy only.

    Args:
        entries: the value of ``egress_allow``, which passed every check.
    """
    return tuple(
        Proxied(
            name=proxied_name(entry["destination"]),
            ports=merged(entry["ports"]),
            until=until(entry["expires"]),
            owner=one_line(entry["owner"]),
            reason=one_line(entry["reason"]),
        )
        for entry in entries
        if entry.get("through") == PROXY and not has_ended(entry["expires"])
    )


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()
