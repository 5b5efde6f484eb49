# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TCP ports for programs of the lab that start a moment later, or again."""

from __future__ import annotations

import itertools
import secrets
import socket

FIRST, LAST = 20_000, 32_767
"""Below those that Linux gives by itself to connections and to listeners without a port (32768 to 60999,
ip_local_port_range): nobody is given one of these between the choice and the start, or between two starts."""
_next = itertools.count(secrets.randbelow(LAST - FIRST))
"""Processes that choose at once begin apart."""


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return ports on which nobody listens, neighbours as a rule. One that was returned comes last again.

    Args:
        count: of ports.
        address: where they are to be free.

    Raises:
        OSError: there are not as many.
    """
    found: list[int] = []
    for number in itertools.islice(_next, LAST - FIRST):
        port = FIRST + number % (LAST + 1 - FIRST)
        if is_free(address, port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"There are no {count} free ports from {FIRST} to {LAST} on {address}.")


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port on which nobody listens."""
    return free_ports(1, address)[0]


def is_free(address: str, port: int) -> bool:
    """Tell whether nobody has a port of an address."""
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
