# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the rules of a rendered ironspan-egress table and follows one packet through them.

It knows what that table uses and nothing else: a word that it does not know is an error.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t


class Packet(t.NamedTuple):
    """The first packet of a connection that a pod opens."""

    source: str
    destination: str
    protocol: str
    port: int
    leaves_by: str
    now: int


_SET = r"(\{[^}]*\}|\S+)"
_CHAIN = re.compile(r"^  chain (\w+) \{\n(.*?)^  \}", re.MULTILINE | re.DOTALL)
_STEPS: tuple[tuple[str, t.Callable[[Packet, re.Match[str]], bool]], ...] = (
    (r"meta nfproto ipv6", lambda packet, _: ":" in packet.destination),
    (r"ip saddr != (\S+)", lambda packet, found: not _within(packet.source, found[1])),
    (r"ip saddr (\S+)", lambda packet, found: _within(packet.source, found[1])),
    (rf"ip daddr {_SET}", lambda packet, found: _within(packet.destination, found[1])),
    (rf"ip6 daddr {_SET}", lambda packet, found: _within(packet.destination, found[1])),
    (
        rf"(tcp|udp) dport {_SET}",
        lambda packet, found: packet.protocol == found[1] and _port(packet, found[2]),
    ),
    (rf"th dport {_SET}", lambda packet, found: _port(packet, found[1])),
    (rf"meta l4proto {_SET}", lambda packet, found: packet.protocol in re.findall(r"\w+", found[1])),
    (r"meta time < (\d+)", lambda packet, found: packet.now < int(found[1])),
    (r'oifname "([^"]+)"', lambda packet, found: packet.leaves_by == found[1]),
    (r'iifname "cni0"', lambda packet, _: True),
    (r'iifname "lo"', lambda packet, _: False),
    (r"ct direction reply ct state established,related", lambda packet, _: False),
    (r"limit rate [^;]*? level info", lambda packet, _: False),
    (r'counter name "\w+"', lambda packet, _: True),
)


def verdict(table: str, chain: str, packet: Packet) -> str:
    """Return ``accept``, or the reason for which a packet is dropped.

    Args:
        table: as rendered.
        chain: where it comes in, ``forward`` or ``input``.
        packet: of a pod.
    """
    elements = re.search(r"set metadata \{.*?elements = \{([^}]*)\}", table, re.DOTALL)
    assert elements
    rules = table.replace("@metadata", f"{{{elements[1]}}}")
    chains = {found[1]: found[2].splitlines() for found in _CHAIN.finditer(rules)}
    return _follow(chains, chain, packet) or "accept"


def _follow(chains: t.Mapping[str, list[str]], name: str, packet: Packet) -> str:
    for line in map(str.strip, chains[name]):
        if not line or line.startswith(("#", "type ")):
            continue
        rest = line
        holds = True
        while holds and (found := next(filter(None, (_match(step, packet, rest) for step in _STEPS)), None)):
            holds, rest = found
        if not holds:
            continue
        word, _, target = rest.partition(" ")
        if word == "accept":
            return "accept"
        if word == "drop":
            return name.removeprefix("drop_")
        assert word in ("goto", "jump"), line
        said = _follow(chains, target, packet)
        if said or word == "goto":
            return said
    return ""


def _match(
    step: tuple[str, t.Callable[[Packet, re.Match[str]], bool]], packet: Packet, rest: str
) -> tuple[bool, str] | None:
    found = re.match(rf"{step[0]}(?: |$)", rest)
    return (step[1](packet, found), rest[found.end() :]) if found else None


def _within(address: str, text: str) -> bool:
    return any(
        ipaddress.ip_address(address) in ipaddress.ip_network(network)
        for network in re.findall(r"[0-9a-f.:/]+", text)
    )


def _port(packet: Packet, text: str) -> bool:
    ranges = (item.partition("-") for item in re.findall(r"[0-9-]+", text))
    return any(int(first) <= packet.port <= int(last or first) for first, _, last in ranges)
