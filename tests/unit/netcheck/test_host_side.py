# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host finds out about its network: parsers, and echoes over loopback."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._health import paths
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 32), st.booleans()).map(
            lambda row: (ipaddress.IPv4Network((row[0] >> (32 - row[1]) << (32 - row[1]), row[1])), row[2])
        )
    )
)
def test_routes(table: list[tuple[ipaddress.IPv4Network, bool]]) -> None:
    def number(address: ipaddress.IPv4Address) -> str:
        return f"{struct.unpack('<L', address.packed)[0]:08X}"

    lines = [
        f"eth0\t{number(network.network_address)}\t00000000\t{1 if direct else 3:04X}"
        f"\t0\t0\t0\t{number(network.netmask)}\t0\t0\t0\n"
        for network, direct in table
    ]
    default = "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    assert paths.routes(HEAD + default + "".join(lines)) == [
        {"network": str(network), "interface": "eth0", "direct": direct} for network, direct in table
    ]


def test_statistics_of_all_processors() -> None:
    text = "entries drop table_fulls\n0000000a 00000001 00000000\n0000000a 0000000f 00000002\n"
    assert paths.statistics(text) == {"entries": 10, "drop": 16, "table_fulls": 2}
    assert paths.statistics("") == {}


def write(root: Path, path: str, text: str) -> None:
    """Write a file below a folder."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_pressure(tmp_path: Path) -> None:
    assert paths.pressure(str(tmp_path)) == {}
    write(tmp_path, "proc/sys/net/netfilter/nf_conntrack_count", "7\n")
    write(tmp_path, "proc/sys/net/netfilter/nf_conntrack_max", "100\n")
    write(tmp_path, "proc/net/stat/nf_conntrack", "entries drop early_drop\n07 01 02\n07 00 01\n")
    write(tmp_path, "proc/net/stat/arp_cache", "entries table_fulls\n0b 00\n0b 01\n")
    for number, value in ((1, 128), (2, 512), (3, 1024)):
        write(tmp_path, f"proc/sys/net/ipv4/neigh/default/gc_thresh{number}", f"{value}\n")
    assert paths.pressure(str(tmp_path)) == {
        "connections": {"count": 7, "most": 100, "dropped": 4},
        "neighbours": {"count": 11, "thresholds": [128, 512, 1024], "full": 1},
    }


def test_interfaces(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/net/eth0/mtu", "1500\n")
    write(tmp_path, "sys/class/net/bonding_masters", "\n")
    assert paths.look(str(tmp_path))["mtu"] == {"eth0": 1500}


def test_echoes_over_loopback() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for raw sockets")
    found = paths.round_trips({"name": "me", "address": "127.0.0.1"})
    assert (found["sent"], len(found["ms"]), found["source"]) == (paths.ECHOES, paths.ECHOES, "127.0.0.1")
    assert 1 <= found["ttl"] <= 255


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for raw sockets")
    monkeypatch.setattr(paths, "ECHO_SECONDS", 0.01)
    # Nothing answers an address of the documentation's network that leads to nowhere.
    monkeypatch.setattr(paths, "_answer", lambda *_: b"")
    found = paths.round_trips({"name": "nobody", "address": "127.0.0.2"})
    assert (found["sent"], found["ms"]) == (3, [])


def test_no_way_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert paths.round_trips({"name": "x", "address": "203.0.113.1"})["error"] == "Network is unreachable"
