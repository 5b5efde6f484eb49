# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Loopback networks that nobody uses, for clusters that a test starts a moment later."""

from __future__ import annotations

import secrets

from ironspan.lab.ports import is_free


def free_network(port: int) -> str:
    """Return the first three numbers of a network of 127.0.0.0/8 that no other test has.

    Args:
        port: nobody listens on it at the network's first address.
    """
    while True:
        network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250) + 1}"
        if is_free(f"{network}.1", port):
            return network
