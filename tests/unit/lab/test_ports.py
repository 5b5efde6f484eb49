# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ports for programs that start later are given to nobody else meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ironspan.lab import ports


def test_the_kernel_gives_none_of_them_by_itself() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = ports.free_ports(50)
    assert min(found) >= ports.FIRST
    assert max(found) <= ports.LAST
    assert len({*found}) == 50
    if lowest == 32768:  # as Linux has it
        assert max(found) < lowest


def test_those_that_are_taken_are_left_out() -> None:
    (port,) = ports.free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert not ports.is_free("127.0.0.1", port)
        assert ports.is_free("127.0.0.2", port)
    assert ports.free_port() != port


def test_where_there_are_none_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda address, port: False)
    with pytest.raises(OSError, match=r"no 3 free ports from 20000 to 32767 on 127\.0\.0\.9"):
        ports.free_ports(3, "127.0.0.9")
