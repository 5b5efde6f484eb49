# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The ways from this host to others, its networks, and how full the kernel's tables are. Reads only."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._health.network import (
    ECHO_SECONDS,
    echo,
    is_reply,
)

ECHOES = 10
PAUSE_SECONDS = 0.02
PACKET_BYTES = 64
INTERFACES = "/sys/class/net"
_GATEWAY = 0x2
"""Flag of a route that leads over another host (linux/route.h, RTF_GATEWAY)."""


def round_trips(peer: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """Send a few echoes to a peer.

    Args:
        peer: ``name`` and ``address``.

    Returns:
        ``peer``, ``sent``, ``ms`` (of those that came back), ``ttl`` (hops that the last answer had left) and
        ``source`` (this host's address on that way), or ``error``.
    """
    found: t.Dict[str, t.Any] = {"peer": peer["name"], "sent": 0, "ms": []}
    address = str(peer["address"])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((address, 9))  # sends nothing
            found["source"] = way.getsockname()[0]
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as link:
            identifier = (os.getpid() ^ secrets.randbits(16)) & 0xFFFF
            for sequence in range(1, ECHOES + 1):
                began = time.monotonic()
                link.sendto(echo(identifier, sequence, PACKET_BYTES), (address, 0))
                found["sent"] += 1
                answer = _answer(link, address, identifier, sequence, began + ECHO_SECONDS)
                if answer:
                    found["ms"].append(round((time.monotonic() - began) * 1000, 2))
                    found["ttl"] = answer[8]
                    time.sleep(PAUSE_SECONDS)
                elif not found["ms"] and sequence > 2:
                    break  # nobody is there: no need to wait ten times
    except OSError as error:
        found["error"] = error.strerror or str(error)
    return found


def _answer(link: socket.socket, address: str, identifier: int, sequence: int, end: float) -> bytes:
    while time.monotonic() < end:
        link.settimeout(max(0.01, end - time.monotonic()))
        try:
            packet, sender = link.recvfrom(2048)
        except socket.timeout:  # noqa: UP041  # only the same as TimeoutError from Python 3.10 on
            break
        if sender[0] == address and is_reply(packet, identifier, sequence):
            return packet
    return b""


def routes(text: str) -> t.List[t.Dict[str, t.Any]]:
    """Return the networks of a routing table, without the default route.

    Args:
        text: of /proc/net/route.

    Returns:
        ``network`` in CIDR notation, ``interface``, and whether it is ``direct``: no host between.
    """
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or fields[7] == "00000000":
            continue
        destination = socket.inet_ntoa(struct.pack("<L", int(fields[1], 16)))
        prefix = bin(int(fields[7], 16)).count("1")
        found.append(
            {
                "network": f"{destination}/{prefix}",
                "interface": fields[0],
                "direct": not int(fields[3], 16) & _GATEWAY,
            }
        )
    return found


def statistics(text: str) -> t.Dict[str, int]:
    """Return the sums of a table in /proc/net/stat, whose numbers are hexadecimal and one line a CPU.

    ``entries`` is the same on every line, so it is taken once.
    """
    lines = text.splitlines()
    if len(lines) < 2:
        return {}
    names = lines[0].split()
    rows = [[int(field, 16) for field in line.split()] for line in lines[1:]]
    totals = {name: sum(row[column] for row in rows) for column, name in enumerate(names)}
    if "entries" in names:
        totals["entries"] = rows[0][names.index("entries")]
    return totals


def pressure(root: str = "") -> t.Dict[str, t.Any]:
    """Return how full the connection and the neighbour table are, as far as the kernel tells."""
    found: t.Dict[str, t.Any] = {}
    settings = f"{root}/proc/sys/net"
    count, most = (_number(f"{settings}/netfilter/nf_conntrack_{name}") for name in ("count", "max"))
    if count is not None and most is not None:
        lost = statistics(_text(f"{root}/proc/net/stat/nf_conntrack"))
        found["connections"] = {
            "count": count,
            "most": most,
            "dropped": lost.get("drop", 0) + lost.get("early_drop", 0),
        }
    neighbours = statistics(_text(f"{root}/proc/net/stat/arp_cache"))
    thresholds = [_number(f"{settings}/ipv4/neigh/default/gc_thresh{number}") for number in (1, 2, 3)]
    if neighbours and None not in thresholds:
        found["neighbours"] = {
            "count": neighbours.get("entries", 0),
            "thresholds": thresholds,
            "full": neighbours.get("table_fulls", 0),
        }
    return found


def look(root: str = "") -> t.Dict[str, t.Any]:
    """Return ``routes``, ``pressure`` and the ``mtu`` of every interface."""
    folder = root + INTERFACES
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    sizes = {name: _number(f"{folder}/{name}/mtu") for name in names}
    return {
        "routes": routes(_text(f"{root}/proc/net/route")),
        "pressure": pressure(root),
        "mtu": {name: size for name, size in sizes.items() if size is not None},
    }


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _number(path: str) -> t.Optional[int]:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None
