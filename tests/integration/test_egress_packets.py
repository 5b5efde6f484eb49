# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The table of the layer egress against real packets.

A namespace is a host with two pods on its bridge, a tunnel to a pod of another host, rules as kube-proxy and
flannel write them, and everything else in the world behind one more link. That a packet was dropped is known
from the counter of the rule that did it, not from waiting for what does not come.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import os
import selectors
import socket
import struct
import threading
import time
import typing as t
from collections.abc import Iterator, Sequence

import pytest
from ansible_collections.ironspan.hybrid.plugins.modules import egress_rules as egress_module
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.egress_rules import (
    as_text,
    report_of,
    rules_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Allowed
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.egress_table import entry, table
from tests.support.namespaces import Namespaces, run, usable

DEADLINE = 120.0
SO_RCVBUFFORCE = 33
"""Of asm-generic/socket.h: beyond net.core.rmem_max, for who may configure networks."""
PLANE, NODE, RESOLVER, OPEN, WIDE = "10.98.0.11", "10.98.0.12", "10.99.0.53", "203.0.113.10", "198.51.100.7"
METADATA, WIRE_SERVER, METADATA_IPV6 = "169.254.169.254", "168.63.129.16", "fd00:ec2::254"
OUTSIDE = (PLANE, NODE, RESOLVER, OPEN, WIDE, METADATA, WIRE_SERVER, "8.8.8.8")
BRIDGE = "02:00:00:00:00:01"
TCP_PORTS = (22, 53, 80, 443, 853, 6443, 10250)
UDP_PORTS = (53, 443, 853, 4433)
ALLOWED = (
    entry("203.0.113.0/24", ports=["443"]),
    # As wide as they come, over a metadata address and over resolvers that are not the site's.
    entry("198.51.100.0/24", "168.0.0.0/8", ports=["1-65535"]),
    entry("198.51.100.0/24", ports=["1-65535"], protocol="udp"),
)
SERVICES = """
table ip kube-proxy
delete table ip kube-proxy
table ip kube-proxy {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    ip daddr 10.96.0.1 tcp dport 443 dnat to 10.98.0.11:6443
    ip daddr 10.96.0.10 udp dport 53 dnat to 10.244.1.11:53
    ip daddr 10.96.0.20 tcp dport 80 dnat to 10.244.1.11:80
    ip daddr 10.96.0.21 tcp dport 80 dnat to 10.244.2.10:80
    ip daddr 10.96.0.22 tcp dport 80 dnat to 10.244.1.10:8080
    ip daddr 10.96.0.66 tcp dport 80 dnat to 203.0.113.10:80
    ip daddr 10.96.0.67 tcp dport 80 dnat to 169.254.169.254:80
    ip daddr 10.96.0.68 tcp dport 80 dnat to 203.0.113.10:443
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr 10.244.1.10 ip daddr 10.244.1.10 masquerade
  }
}
"""
MASQUERADE = """
table ip flannel
delete table ip flannel
table ip flannel {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr 10.244.0.0/16 ip daddr 10.244.0.0/16 return
    ip saddr 10.244.0.0/16 masquerade
  }
}
"""


class Servers:
    """Answers everything in its namespaces, and remembers what came from whom on which address."""

    def __init__(self) -> None:
        self.datagrams: list[tuple[str, bytes]] = []
        self.connections: list[str] = []
        self.streams: list[bytes] = []
        self._selector = selectors.DefaultSelector()
        self._stop, self._stopped = os.pipe()
        self._selector.register(self._stop, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ours: dict[socket.socket, str] = {}

    def listen(self, listener: socket.socket, address: str, port: int, label: str) -> None:
        """Serve one address."""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.setblocking(False)
        if listener.type == socket.SOCK_STREAM:
            listener.listen(16)
        else:
            # All that comes while this thread waits for the processor: none may be lost that was let through.
            listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._ours[listener] = label
        self._selector.register(listener, selectors.EVENT_READ, label)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        os.write(self._stopped, b"x")
        self._thread.join(DEADLINE)
        for listener in list(self._ours):
            listener.close()
        os.close(self._stop)
        os.close(self._stopped)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                # To a source that nobody has there is no answer; the others want theirs.
                with contextlib.suppress(OSError):
                    self._answer(t.cast(socket.socket, key.fileobj), key.data)

    def _answer(self, ours: socket.socket, label: str) -> None:
        if ours.type == socket.SOCK_DGRAM:
            data, peer = ours.recvfrom(2048)
            self.datagrams.append((label, data))
            ours.sendto(data, peer)
        elif label == "stream":
            data = ours.recv(2048)
            self.streams.append(data)
            if not data:
                self._selector.unregister(ours)
                ours.close()
        else:
            accepted, _ = ours.accept()
            self.connections.append(label)
            accepted.setblocking(False)
            self._ours[accepted] = "stream"
            self._selector.register(accepted, selectors.EVENT_READ, "stream")


class World:
    """The namespaces, the servers in them, and what the table has counted."""

    def __init__(self) -> None:
        self.spaces = Namespaces()
        self.servers = Servers()
        self.pods = 0

    def build(self) -> None:
        """Make everything but the table."""
        spaces = self.spaces
        for name in ("host", "out", "other"):
            spaces.add(name)
        spaces.ip(
            "host",
            f"link add cni0 address {BRIDGE} type bridge",
            "link set cni0 up",
            "address add 10.244.1.1/24 dev cni0",
        )
        spaces.ip("host", "address add fd01::1/64 dev cni0 nodad")
        spaces.run(
            "host", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
            "net.bridge.bridge-nf-call-iptables=1", "net.ipv4.conf.all.rp_filter=0",
        )  # fmt: skip
        spaces.pair(("host", "eth0"), ("out", "eth0"))
        spaces.ip("host", "address add 10.98.0.1/24 dev eth0", "route add default via 10.98.0.11")
        spaces.ip("host", "address add fd02::1/64 dev eth0 nodad", "route add default via fd02::2")
        spaces.ip("out", *(f"address add {address}/32 dev eth0" for address in OUTSIDE))
        spaces.ip("out", "route add 10.98.0.1/32 dev eth0", "route add 10.244.0.0/16 via 10.98.0.1")
        spaces.ip("out", "address add fd02::2/64 dev eth0 nodad", f"address add {METADATA_IPV6}/128 dev lo")
        spaces.ip("out", "route add fd01::/64 via fd02::1")
        spaces.pair(("host", "flannel.1"), ("other", "eth0"))
        spaces.ip("host", "address add 10.244.1.0/32 dev flannel.1", "route add 10.244.2.0/24 dev flannel.1")
        spaces.ip("other", "address add 10.244.2.10/24 dev eth0", "route add 10.244.1.0/32 dev eth0")
        spaces.ip("other", "route add default via 10.244.1.0")
        for name, last in (("pod", 10), ("peer", 11)):
            self.add_pod(name, last)
        spaces.ip("pod", "address add 192.0.2.7/32 dev lo")
        spaces.nft("host", SERVICES)
        spaces.nft("host", MASQUERADE)
        self._serve()

    def add_pod(self, name: str, last: int) -> None:
        """Make a pod as a network plugin does."""
        spaces = self.spaces
        self.pods += 1
        spaces.add(name)
        spaces.pair(("host", f"veth{self.pods}"), (name, "eth0"))
        spaces.ip("host", f"link set veth{self.pods} master cni0")
        spaces.ip(name, f"address add 10.244.1.{last}/24 dev eth0", "route add default via 10.244.1.1")
        spaces.ip(name, f"address add fd01::{last}/64 dev eth0 nodad", "route add default via fd01::1")
        # Neighbours cannot be found, as the table drops the question; a pod may know the answer all the same.
        spaces.ip(name, f"neighbour add fd01::1 lladdr {BRIDGE} dev eth0")

    def _serve(self) -> None:
        def listen(space: str, kind: int, address: str, port: int) -> None:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            ours = self.spaces.socket(space, family, kind)
            self.servers.listen(ours, address, port, f"{address}:{port}")

        for address in (*OUTSIDE, "fd02::2", METADATA_IPV6):
            for port in TCP_PORTS:
                listen("out", socket.SOCK_STREAM, address, port)
            for port in UDP_PORTS:
                listen("out", socket.SOCK_DGRAM, address, port)
        for space, address in (("host", "0.0.0.0"), ("peer", "10.244.1.11"), ("other", "10.244.2.10")):
            for port in (22, 80, 6443, 10250):
                listen(space, socket.SOCK_STREAM, address, port)
            listen(space, socket.SOCK_DGRAM, address, 53)
        listen("pod", socket.SOCK_STREAM, "10.244.1.10", 8080)
        self.servers.start()

    def load(self, allowed: Sequence[Allowed] = ALLOWED, **options: t.Any) -> None:
        """Load the table."""
        options = {
            "planes": [PLANE],
            "resolvers": [RESOLVER],
            "node_networks": ["10.98.0.0/24"],
            "node_ports": ["10250"],
            **options,
        }
        self.spaces.nft("host", table(allowed, **options))

    def counted(self) -> dict[str, int]:
        """Return the packets of every counter."""
        shown = json.loads(
            self.spaces.run("host", "nft", "-j", "list", "counters", "table", "inet", "ironspan-egress")
        )
        counters = [each["counter"] for each in shown["nftables"] if "counter" in each]
        return {counter["name"]: counter["packets"] for counter in counters}

    def outcome(self, probe: Probe) -> str:
        """Send one packet or connection and return ``passes`` or the counter that grew."""
        before = self.counted()
        family = socket.AF_INET6 if ":" in probe.address else socket.AF_INET
        kind = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM, "icmp": socket.SOCK_RAW}[probe.protocol]
        number = socket.IPPROTO_ICMP if probe.protocol == "icmp" else 0
        until = time.monotonic() + DEADLINE
        with self.spaces.socket(probe.space, family, kind, number) as ours:
            ours.setblocking(False)
            if probe.source:
                ours.bind((probe.source, 0))
            error = ours.connect_ex((probe.address, probe.port))
            assert error in (0, 115), os.strerror(error)
            if probe.protocol != "tcp":
                ours.send(b"\x08\0\xf7\xff\0\0\0\0" if probe.protocol == "icmp" else b"hello")
            while time.monotonic() < until:
                if probe.protocol == "tcp":
                    if _connected(ours):
                        return "passes"
                elif _answered(ours):
                    return "passes"
                grown = self._grown(before)
                if grown:
                    return grown
        return "nothing"

    def _grown(self, before: dict[str, int]) -> str:
        now = self.counted()
        grown = [name for name in now if now[name] > before[name] and not name.startswith("allow_")]
        return ",".join(grown)

    def close(self) -> None:
        """Remove everything."""
        self.servers.close()
        self.spaces.close()


def _connected(ours: socket.socket) -> bool:
    try:
        ours.getpeername()
    except OSError:
        time.sleep(0.005)
        return False
    return True


def _say_nothing_later(ours: socket.socket) -> None:
    """Let a close end the connection at once: what was dropped would come again, in the next test."""
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _answered(ours: socket.socket) -> bool:
    try:
        return bool(ours.recv(2048))
    except BlockingIOError:
        time.sleep(0.005)
        return False


@dataclasses.dataclass(frozen=True)
class Probe:
    """One attempt, and what must become of it."""

    protocol: str
    address: str
    port: int
    verdict: str
    space: str = "pod"
    source: str = ""

    def __str__(self) -> str:
        source = f"({self.source})" if self.source else ""
        return f"{self.space}{source}-{self.protocol}-{self.address}-{self.port}-{self.verdict}"


MATRIX = (
    # the cluster
    Probe("tcp", "10.244.1.11", 80, "passes"),
    Probe("udp", "10.244.1.11", 53, "passes"),
    Probe("tcp", "10.244.2.10", 22, "passes"),
    Probe("tcp", "10.244.1.11", 80, "passes", "other"),
    Probe("tcp", "10.96.0.1", 443, "passes"),
    Probe("udp", "10.96.0.10", 53, "passes"),
    Probe("tcp", "10.96.0.20", 80, "passes"),
    Probe("tcp", "10.96.0.21", 80, "passes"),
    Probe("tcp", PLANE, 6443, "passes"),
    Probe("tcp", NODE, 10250, "passes"),
    # hosts
    Probe("tcp", PLANE, 22, "outside"),
    Probe("tcp", NODE, 6443, "outside"),
    Probe("tcp", NODE, 22, "outside"),
    Probe("tcp", "10.98.0.1", 10250, "passes"),
    Probe("tcp", "10.98.0.1", 22, "host"),
    Probe("tcp", "10.98.0.1", 6443, "host"),
    Probe("tcp", "10.244.1.1", 22, "host"),
    Probe("tcp", "10.244.1.1", 22, "host", "other"),
    Probe("udp", "10.244.1.1", 53, "resolver"),
    # the allow-list
    Probe("tcp", OPEN, 443, "passes"),
    Probe("tcp", OPEN, 80, "outside"),
    Probe("udp", OPEN, 443, "outside"),
    Probe("tcp", WIDE, 80, "passes"),
    Probe("udp", WIDE, 4433, "passes"),
    Probe("tcp", "8.8.8.8", 443, "outside"),
    Probe("icmp", "8.8.8.8", 0, "outside"),
    Probe("icmp", OPEN, 0, "outside"),
    Probe("tcp", OPEN, 80, "outside", "other"),
    Probe("tcp", "10.96.0.68", 80, "passes"),
    # services that stand for something outside, and one that stands for nothing
    Probe("tcp", "10.96.0.66", 80, "outside"),
    Probe("tcp", "10.96.0.67", 80, "metadata"),
    Probe("tcp", "10.96.0.99", 80, "outside"),
    # resolvers
    Probe("udp", RESOLVER, 53, "passes"),
    Probe("tcp", RESOLVER, 53, "passes"),
    Probe("tcp", RESOLVER, 853, "resolver"),
    Probe("tcp", RESOLVER, 443, "outside"),
    Probe("udp", "8.8.8.8", 53, "resolver"),
    Probe("tcp", "8.8.8.8", 853, "resolver"),
    Probe("udp", WIDE, 53, "resolver"),
    Probe("tcp", WIDE, 53, "resolver"),
    Probe("udp", WIDE, 853, "resolver"),
    # metadata
    Probe("tcp", METADATA, 80, "metadata"),
    Probe("udp", METADATA, 53, "metadata"),
    Probe("tcp", WIRE_SERVER, 80, "metadata"),
    Probe("tcp", METADATA, 80, "metadata", "other"),
    Probe("tcp", METADATA_IPV6, 80, "metadata"),
    # IPv6
    Probe("tcp", "fd02::2", 443, "ipv6"),
    Probe("udp", "fd02::2", 53, "ipv6"),
    Probe("tcp", "fd01::1", 22, "ipv6"),
    # addresses that are nobody's
    Probe("udp", "10.244.200.5", 9, "unrouted"),
    Probe("udp", OPEN, 443, "spoofed", source="192.0.2.7"),
    Probe("tcp", OPEN, 443, "spoofed", source="192.0.2.7"),
    Probe("tcp", "10.98.0.1", 10250, "spoofed", source="192.0.2.7"),
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Return the namespaces, without the table."""
    if not usable():
        pytest.skip("network namespaces need root")
    made = World()
    try:
        made.build()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("probe", MATRIX, ids=str)
def test_matrix(world: World, probe: Probe) -> None:
    world.load()
    assert world.outcome(probe) == probe.verdict


class Flood:
    """Datagrams from a pod to something allowed and something that is not, as fast as a thread sends them."""

    def __init__(self, world: World, allowed: tuple[str, int], denied: tuple[str, int]) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._sockets = [world.spaces.socket("pod", socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for ours, where in zip(self._sockets, (allowed, denied), strict=True):
            ours.connect(where)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            for ours in self._sockets:
                ours.send(b"flood-%d" % self.sent)
            self.sent += 1
            time.sleep(0.0005)

    def wait(self, more: int) -> None:
        """Wait until so many more have been sent."""
        until, wanted = time.monotonic() + DEADLINE, self.sent + more
        while self.sent < wanted:
            assert time.monotonic() < until
            time.sleep(0.001)

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join(DEADLINE)
        for ours in self._sockets:
            ours.close()


def arrived(world: World, address: str, port: int, at_least: int = 0) -> list[bytes]:
    """Return the datagrams that reached an address, waiting for those that must."""
    until = time.monotonic() + DEADLINE
    while True:
        found = [data for label, data in list(world.servers.datagrams) if label == f"{address}:{port}"]
        if len(found) >= at_least or time.monotonic() > until:
            return found
        time.sleep(0.01)


def test_no_packet_slips_through_while_the_table_is_loaded_again(world: World) -> None:
    world.load()
    world.servers.datagrams.clear()
    flood = Flood(world, (WIDE, 4433), ("8.8.8.8", 4433))
    try:
        for _ in range(40):
            world.load()
            flood.wait(3)
    finally:
        flood.close()
    # Nothing that is allowed is lost either.
    assert len(arrived(world, WIDE, 4433, flood.sent)) == flood.sent
    assert arrived(world, "8.8.8.8", 4433) == []


def test_restarts_of_the_network_plugin_and_of_kube_proxy_open_nothing(world: World) -> None:
    world.load()
    world.servers.datagrams.clear()
    flood = Flood(world, (WIDE, 4433), ("8.8.8.8", 4433))
    try:
        for rules in (SERVICES, MASQUERADE) * 5:
            name = rules.split("{")[0].split()[-1]
            world.spaces.nft("host", f"delete table ip {name}")
            flood.wait(20)
            world.spaces.nft("host", rules)
            flood.wait(20)
    finally:
        flood.close()
    assert arrived(world, "8.8.8.8", 4433) == []


def test_the_first_packets_of_a_pod_are_judged(world: World) -> None:
    world.load()
    world.servers.datagrams.clear()
    for last in range(20, 30):
        name = f"new{last}"
        world.add_pod(name, last)
        with world.spaces.socket(name, socket.AF_INET, socket.SOCK_DGRAM) as ours:
            for where in (("8.8.8.8", 4433), (METADATA, 4433), (WIDE, 4433)):
                ours.sendto(name.encode(), where)
    assert len(arrived(world, WIDE, 4433, 10)) == 10
    assert arrived(world, "8.8.8.8", 4433) == arrived(world, METADATA, 4433) == []


def _used_before(world: World, ours: socket.socket, ends: int) -> bool:
    """Tell whether something came through a connection before the entry that allows it ended."""
    world.load([entry("203.0.113.0/24", ports=["443"], until=ends)])
    world.servers.streams.clear()
    _say_nothing_later(ours)
    ours.settimeout(max(0.1, ends - time.time()))
    with contextlib.suppress(OSError):
        ours.connect((OPEN, 443))
        ours.send(b"before")
    while b"before" not in world.servers.streams and time.time() < ends:
        time.sleep(0.01)
    return b"before" in world.servers.streams


def test_an_entry_ends_by_itself_and_its_connections_with_it(world: World) -> None:
    with contextlib.ExitStack() as stack:
        for seconds in (5, 40, 320):  # a busy machine may take longer to send one packet
            ours = stack.enter_context(world.spaces.socket("pod", socket.AF_INET, socket.SOCK_STREAM))
            ends = int(time.time()) + seconds
            if _used_before(world, ours, ends):
                break
        ours.settimeout(DEADLINE)
        time.sleep(max(0.0, ends - time.time()) + 0.1)
        before = world.counted()
        ours.send(b"after")
        until = time.monotonic() + DEADLINE
        while world.counted()["outside"] == before["outside"]:
            assert time.monotonic() < until
    assert world.servers.streams == [b"before"]
    assert world.outcome(Probe("tcp", OPEN, 443, "")) == "outside"


def test_a_tighter_list_ends_connections_at_once(world: World) -> None:
    world.load()
    world.servers.streams.clear()
    with world.spaces.socket("pod", socket.AF_INET, socket.SOCK_STREAM) as ours:
        ours.settimeout(DEADLINE)
        _say_nothing_later(ours)
        ours.connect((OPEN, 443))
        world.load([])
        ours.send(b"after")
        until = time.monotonic() + DEADLINE
        while not world.counted()["outside"]:
            assert time.monotonic() < until
    assert world.servers.streams == []


@pytest.mark.parametrize(
    ("space", "address", "port"),
    [("host", "10.244.1.10", 8080), ("out", "10.244.1.10", 8080), ("host", "8.8.8.8", 443)],
)
def test_what_others_open_is_answered_and_hosts_are_free(
    world: World, space: str, address: str, port: int
) -> None:
    world.load()
    assert world.outcome(Probe("tcp", address, port, "passes", space)) == "passes"


def test_a_resolver_may_be_where_a_cloud_keeps_its_metadata(world: World) -> None:
    world.load(resolvers=[WIRE_SERVER])
    assert world.outcome(Probe("udp", WIRE_SERVER, 53, "")) == "passes"
    assert world.outcome(Probe("tcp", WIRE_SERVER, 80, "")) == "metadata"
    assert world.outcome(Probe("udp", RESOLVER, 53, "")) == "resolver"


def test_drops_and_what_entries_let_through_are_counted(world: World) -> None:
    world.load()
    for probe in (Probe("tcp", OPEN, 443, ""), Probe("tcp", OPEN, 80, ""), Probe("udp", "8.8.8.8", 53, "")):
        world.outcome(probe)
    counted = world.counted()
    assert counted["allow_1"] > 0
    assert counted["allow_2"] == counted["allow_3"] == counted["metadata"] == 0
    assert counted["outside"] > 0
    assert counted["resolver"] == 1


def test_the_rules_in_force_are_shown_with_who_answers_for_them(world: World) -> None:
    until = 4_102_444_800
    allowed = [
        dataclasses.replace(entry("203.0.113.0/24", ports=["443", "8000-8100"]), owner="storage (a: b)"),
        entry("198.51.100.7/32", "9.9.9.0/24", protocol="udp", until=1_700_000_000),
    ]
    world.load(allowed)
    for _ in range(2):
        assert world.outcome(Probe("tcp", OPEN, 443, "")) == "passes"
    world.outcome(Probe("udp", "8.8.8.8", 53, ""))
    answer = {
        "rules": world.spaces.run("host", *egress_module.COMMAND),
        "counters": world.counted(),
        "file": table(allowed),
    }
    first, second = rules_of(answer, time.time())
    assert first[:8] == (
        "203.0.113.0/24", ["203.0.113.0/24"], "tcp", ["443", "8000-8100"], "2099-12-31", False,
        "storage (a: b)", "a test",
    )  # fmt: skip
    assert first.packets >= 2
    assert second.networks == ["9.9.9.0/24", "198.51.100.7"]
    assert (second.protocol, second.last_day, second.ended) == ("udp", "2023-11-13", True)
    report = report_of({"rack-1": answer, "rack-2": None}, time.time())
    assert report["hosts"]["rack-1"]["dropped"]["resolver"] == 1
    assert report["hosts"]["rack-2"]["problem"] == "did not answer"
    # A rule that somebody changed by hand is nobody's.
    other = {**answer, "file": table([entry("203.0.113.0/24", until=until + 1)])}
    assert rules_of(other, time.time())[0].owner == ""
    assert "is not what this host's file says" in as_text(report_of({"rack-1": other}, time.time()))


def test_without_the_table_everything_passes(world: World) -> None:
    """The probes would reach their aims: what stops them is the table."""
    world.load()
    world.spaces.nft("host", "flush table inet ironspan-egress")
    for probe in (
        Probe("tcp", "8.8.8.8", 443, ""),
        Probe("udp", "8.8.8.8", 53, ""),
        Probe("tcp", METADATA, 80, ""),
        Probe("tcp", "fd02::2", 443, ""),
        Probe("tcp", METADATA_IPV6, 80, ""),
        Probe("tcp", "10.98.0.1", 22, ""),
        Probe("tcp", OPEN, 80, "", "other"),
    ):
        assert world.outcome(probe) == "passes", str(probe)


NETWORKS = st.builds(
    lambda address, prefix: str(ipaddress.ip_network((address, prefix), strict=False)),
    st.integers(0, 2**32 - 1),
    st.integers(egress.WIDEST_PREFIX, 32),
)
PORTS = st.lists(st.integers(1, 65_535) | st.sampled_from(["1-65535", "8000-8100"]), min_size=1, max_size=4)
ENTRIES = st.builds(
    lambda networks, ports, protocol, until, text: dataclasses.replace(
        entry(*egress.collapsed(networks), ports=egress.merged(ports), protocol=protocol, until=until),
        owner=text,
        reason=text,
    ),
    st.lists(NETWORKS, min_size=1, max_size=4),
    PORTS,
    st.sampled_from(["tcp", "udp"]),
    st.integers(0, 2**33),
    st.from_regex(r"[^\"\x00-\x1f\x7f]{1,100}", fullmatch=True),
)


@settings(max_examples=30)
@given(
    st.lists(ENTRIES, max_size=5),
    st.lists(NETWORKS, max_size=4),
    st.lists(st.ip_addresses(v=4).map(str), max_size=4),
    PORTS,
    st.lists(st.sampled_from(["cni0", "lxc*", "eth0.1", "flannel.1"]), min_size=1, max_size=3),
)
def test_every_table_is_one_that_nft_accepts(
    world: World,
    allowed: list[Allowed],
    networks: list[str],
    addresses: list[str],
    ports: list[t.Any],
    interfaces: list[str],
) -> None:
    text = table(
        allowed,
        planes=addresses,
        resolvers=addresses,
        node_networks=egress.collapsed(networks),
        node_ports=egress.merged(ports) if networks else (),
        pod_interfaces=interfaces,
        overlay_interfaces=interfaces[1:],
    )
    run("ip", "netns", "exec", world.spaces.full("other"), "nft", "-c", "-f", "-", text=text)
