# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`python -m ironspan.lab.virtual.leaf SWITCH PORT=DEVICE ...`: what a leaf switch says by LLDP.

Frames as in IEEE 802.1AB-2016, sent on the bridge's ports as a switch sends them. Nobody listens here.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

EVERY_S = 5.0
"""The agent listens for 30 s at first."""
_LIVES_S = 120
_NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
_ETHERTYPE = 0x88CC
_CHASSIS, _PORT, _TTL, _DESCRIPTION, _NAME, _END = 1, 2, 3, 4, 5, 0
_MAC, _INTERFACE_NAME = b"\x04", b"\x05"
"""Subtypes of the chassis and of the port: clauses 8.5.2.2 and 8.5.3.2."""


def frame(switch: str, port: str, mac: bytes) -> bytes:
    """Return what a switch says on a port.

    Args:
        switch: its system name.
        port: name of the port.
        mac: the switch's own address.
    """
    values = (
        (_CHASSIS, _MAC + mac),
        (_PORT, _INTERFACE_NAME + port.encode()),
        (_TTL, _LIVES_S.to_bytes(2, "big")),
        (_DESCRIPTION, port.encode()),
        (_NAME, switch.encode()),
        (_END, b""),
    )
    said = b"".join(((kind << 9) | len(value)).to_bytes(2, "big") + value for kind, value in values)
    return _NEAREST_BRIDGE + mac + _ETHERTYPE.to_bytes(2, "big") + said


def serve(switch: str, ports: Mapping[str, str]) -> None:
    """Say it every few seconds until the process is ended.

    Args:
        switch: the switch's system name.
        ports: device of each of its ports.
    """
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        while not over.wait(EVERY_S):
            for port, device in ports.items():
                # A server that is off has no carrier on its port.
                with contextlib.suppress(OSError):
                    mac = bytes.fromhex(Path(f"/sys/class/net/{device}/address").read_text().replace(":", ""))
                    wire.sendto(frame(switch, port, mac), (device, 0))


if __name__ == "__main__":
    serve(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))
