# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Probes from a host: what fits through the link, whether names are answered, how far the API is.

A few small packets each; nothing is left behind.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
import typing as t

IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
"""Linux ip(7): set "don't fragment" and do not heed what is known of the path."""
HEADERS_BYTES = 28
"""Of IPv4 without options (20) and of an ICMP echo (8)."""
SMALLEST_MTU = 576
"""RFC 791: every IPv4 host takes packets of this size."""
ECHO_SECONDS = 1.0
ECHO_ATTEMPTS = 2
DNS_SECONDS = 2.0
CONNECT_SECONDS = 3.0
CONNECTS = 3


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo(identifier: int, sequence: int, size: int) -> bytes:
    """Return an ICMP echo request that makes an IPv4 packet of ``size`` bytes."""
    padding = b"\0" * (size - HEADERS_BYTES)
    summed = checksum(struct.pack("!BBHHH", 8, 0, 0, identifier, sequence) + padding)
    return struct.pack("!BBHHH", 8, 0, summed, identifier, sequence) + padding


def is_reply(packet: bytes, identifier: int, sequence: int) -> bool:
    """Tell whether an IPv4 packet is the reply to an echo request."""
    header = (packet[0] & 0x0F) * 4 if packet else 0
    if len(packet) < header + 8:
        return False
    kind, _, _, theirs, number = struct.unpack("!BBHHH", packet[header : header + 8])
    return bool(kind == 0 and theirs == identifier and number == sequence)


def passes(address: str, size: int) -> bool:
    """Tell whether an unfragmented packet of this size gets to an address and back.

    Raises:
        OSError: no packet can be sent at all.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as link:
        link.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        identifier = (os.getpid() ^ secrets.randbits(16)) & 0xFFFF
        for sequence in range(1, ECHO_ATTEMPTS + 1):
            try:
                link.sendto(echo(identifier, sequence, size), (address, 0))
            except OSError as error:
                if error.errno == 90:  # EMSGSIZE: longer than this host's own interface takes
                    return False
                raise
            end = time.monotonic() + ECHO_SECONDS
            while time.monotonic() < end:
                link.settimeout(max(0.01, end - time.monotonic()))
                try:
                    packet, sender = link.recvfrom(65535)
                except socket.timeout:  # noqa: UP041  # only the same as TimeoutError from Python 3.10 on
                    break
                if sender[0] == address and is_reply(packet, identifier, sequence):
                    return True
    return False


def largest(fits: t.Callable[[int], bool], wanted: int) -> int:
    """Return the largest packet up to ``wanted`` bytes that fits, 0 when not even the smallest does.

    Args:
        fits: asks for one size.
        wanted: bytes.
    """
    if fits(wanted):
        return wanted
    if wanted <= SMALLEST_MTU or not fits(SMALLEST_MTU):
        return 0
    low, high = SMALLEST_MTU, wanted
    while high - low > 8:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def path_mtu(peer: t.Mapping[str, t.Any], wanted: int) -> t.Dict[str, t.Any]:
    """Return what fits to one peer: ``largest`` in bytes (0: it does not answer), or ``error``."""
    found: t.Dict[str, t.Any] = {"peer": peer["name"], "wanted": wanted}
    try:
        found["largest"] = largest(lambda size: passes(str(peer["address"]), size), wanted)
    except OSError as error:
        found["error"] = error.strerror or str(error)
    return found


def dns_query(name: str, number: int) -> bytes:
    """Return a query for a name's IPv4 address (RFC 1035)."""
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split("."))
    return struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1)


def resolve(server: str, name: str) -> t.Dict[str, t.Any]:
    """Ask a name server for a name, twice at most; returns milliseconds, or what is wrong as ``error``."""
    error = ""
    for _attempt in range(2):
        number = secrets.randbits(16)
        began = time.monotonic()
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
                link.settimeout(DNS_SECONDS)
                link.connect((server, 53))
                link.send(dns_query(name, number))
                answer = link.recv(4096)
        except socket.timeout:  # noqa: UP041  # only the same as TimeoutError from Python 3.10 on
            error = f"no answer within {DNS_SECONDS:g} s"
            continue
        except OSError as wrong:
            error = wrong.strerror or str(wrong)
            continue
        if len(answer) < 12 or struct.unpack("!H", answer[:2])[0] != number:
            error = "an answer to something else"
            continue
        flags, _, answers = struct.unpack("!HHH", answer[2:8])
        if flags & 0x0F or not answers:
            error = f"it knows no {name} (code {flags & 0x0F})"
            continue
        return {"ms": round((time.monotonic() - began) * 1000, 1)}
    return {"error": error}


def addresses_of(name: str) -> t.Dict[str, t.Any]:
    """Return the IPv4 ``addresses`` that this host's own resolver has for a name, or ``error``."""
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        return {"error": error.strerror or str(error)}
    return {"addresses": sorted({str(entry[4][0]) for entry in found})}


def connect_time(host: str, port: int) -> t.Dict[str, t.Any]:
    """Return the median time of opening a connection in milliseconds (one round trip), or ``error``."""
    took = []
    for _attempt in range(CONNECTS):
        began = time.monotonic()
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
        except OSError as error:
            return {"error": error.strerror or str(error)}
        took.append((time.monotonic() - began) * 1000)
    return {"ms": round(sorted(took)[len(took) // 2], 1)}
