# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The node's cache for names with the real CoreDNS: a pod, its host and the world beyond a link that is cut.

Each is a network namespace. Fresh answers live one second here, answers from a cache whose source is away
thirty: that is how they are told apart, without looking at a clock.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dns_server
from tests.support.dns_server import Answer
from tests.support.dns_templates import ADDRESS, CLUSTER_DNS, RESOLVER, rendered
from tests.support.egress_table import table as egress_table
from tests.support.namespaces import Namespaces, usable
from tests.support.waiting import until

VERSION = "1.14.7"
DEADLINE = 60.0
STALE_TTL = 30
SERVICE, OUTSIDE = "web.default.svc.cluster.local", "www.example.test"
TRACKED = """
table ip test-tracked {
  counter untracked { }
  counter tracked { }
  chain input {
    type filter hook input priority -200; policy accept;
    ip daddr 169.254.20.10 udp dport 53 ct state untracked counter name untracked
    ip daddr 169.254.20.10 udp dport 53 ct state != untracked counter name tracked
  }
}
"""


def find_coredns(folder: Path) -> Path:
    """Return CoreDNS, unpacked into ``folder`` when it comes from the mirror; the test is skipped without."""
    given = os.environ.get("IRONSPAN_TEST_BINARIES")
    if given:
        return Path(given) / "coredns"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    image = cache / "ironspan/mirror/v2/registry.k8s.io/coredns/coredns"
    try:
        manifest = json.loads((image / "manifests" / f"v{VERSION}").read_bytes())
        for layer in manifest["layers"]:
            with tarfile.open(image / "blobs" / layer["digest"]) as archive:
                member = next(item for item in archive if Path(item.name).name == "coredns" and item.isfile())
                archive.extract(member, folder, filter="data")
        return folder / "coredns"
    except (OSError, KeyError, StopIteration) as error:
        message = f"the mirror lacks CoreDNS ({error!r}); run `ironspan artifacts build`"
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
            pytest.fail(message)
        pytest.skip(message)


class World:
    """A pod, its host with the cache, and two servers for names behind the link ``wan``."""

    def __init__(self, folder: Path, coredns: Path) -> None:
        self.namespaces = Namespaces()
        self.addresses = {SERVICE: "10.96.7.7", OUTSIDE: "203.0.113.10"}
        self._folder, self._coredns = folder, coredns
        self._server = dns_server.Server(lambda name: self.addresses.get(name, "203.0.113.99"))
        self._process: subprocess.Popen[bytes] | None = None

    def build(self) -> None:
        """Make the namespaces, load the tables, start everything."""
        spaces = self.namespaces
        for name in ("pod", "host", "world"):
            spaces.add(name)
        spaces.pair(("pod", "eth0"), ("host", "cni0"))
        spaces.pair(("host", "wan"), ("world", "eth0"))
        spaces.ip("pod", "address add 10.244.1.10/24 dev eth0", "route add default via 10.244.1.1")
        spaces.ip(
            "host",
            "address add 10.244.1.1/24 dev cni0",
            "address add 10.98.0.12/24 dev wan",
            "route add default via 10.98.0.1",
        )
        spaces.ip(
            "world",
            "address add 10.98.0.1/24 dev eth0",
            f"address add {CLUSTER_DNS}/32 dev lo",
            f"address add {RESOLVER}/32 dev lo",
        )
        for address in (CLUSTER_DNS, RESOLVER):
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                self._server.serve(spaces.socket("world", socket.AF_INET, kind), address)
        spaces.nft("host", egress_table(resolvers=[RESOLVER], node_cache=True))
        spaces.nft("host", TRACKED)
        spaces.nft("host", rendered("table.nft.j2"))
        spaces.ip("host", f"address replace {ADDRESS}/32 dev lo")
        self.start(quick(rendered("Corefile.j2")))

    def start(self, text: str) -> None:
        """Start the cache with a configuration, in the place of one that runs."""
        self._stop()
        configuration = self._folder / "Corefile"
        configuration.write_text(text)
        with (self._folder / "coredns.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespaces.full("host"), str(self._coredns),
                 "-conf", str(configuration)],
                stdout=log, stderr=log,
            )  # fmt: skip
        until(lambda: self.ask(SERVICE) is not None)

    def _stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(DEADLINE)

    def close(self) -> None:
        """Take everything away."""
        self._stop()
        self._server.close()
        self.namespaces.close()

    def ask(self, name: str) -> Answer | None:
        """Let the pod ask its host's cache; a busy machine may take seconds to answer."""
        with self.namespaces.socket("pod", socket.AF_INET, socket.SOCK_DGRAM) as client:
            return dns_server.ask(client, ADDRESS, name, 10)

    def ttl(self, name: str) -> int:
        """Return how long an answer lives, 0 without one."""
        return (self.ask(name) or Answer(0)).ttl

    def link(self, state: str) -> None:
        """Cut (``down``) or heal (``up``) the way to the servers."""
        self.namespaces.ip("host", f"link set wan {state}")
        if state == "up":
            self.namespaces.ip("host", "route replace default via 10.98.0.1")

    def count(self, table: str, counter: str) -> int:
        """Return the packets of a counter on the host."""
        text = self.namespaces.run("host", "nft", "list", "counter", "ip", table, counter)
        found = re.search(r"packets (\d+)", text)
        return int(found[1]) if found else 0


def quick(configuration: str) -> str:
    """Return the node's configuration with answers that are fresh, and not asked for again, for a second."""
    for old, new in (
        (r"success 9984 \d+", "success 9984 1 1"),
        (r"denial 9984 \d+", "denial 9984 1 1"),
        (r"(serve_stale 24h verify \d+ms 30s) 30s", r"\1 1s"),
    ):
        configuration, count = re.subn(old, new, configuration)
        assert count == 2, old
    return configuration


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return the three namespaces, with everything running."""
    if not usable():
        pytest.skip("needs root, for network namespaces")
    folder = tmp_path_factory.mktemp("dns")
    with contextlib.ExitStack() as stack:
        made = World(folder, find_coredns(folder))
        stack.callback(made.close)
        made.build()
        yield made


def test_names_are_answered_while_the_link_is_cut(world: World) -> None:
    for name in (SERVICE, OUTSIDE):
        fresh = world.ask(name)
        assert fresh is not None
        assert (fresh.code, fresh.addresses) == (dns_server.NOERROR, (world.addresses[name],))
        assert fresh.ttl <= 1
    world.link("down")
    for name in (SERVICE, OUTSIDE):
        until(functools.partial(lambda asked: world.ttl(asked) == STALE_TTL, name))
    time.sleep(2)  # so that an answer which is kept for a moment only would be gone
    for name in (SERVICE, OUTSIDE):
        stale = Answer(dns_server.NOERROR, (world.addresses[name],), STALE_TTL)
        until(functools.partial(lambda asked, answer: world.ask(asked) == answer, name, stale))


def test_what_nobody_asked_before_fails_while_the_link_is_cut(world: World) -> None:
    world.link("down")
    answer = world.ask("never-asked.example.test")
    assert answer is None or (answer.code, answer.addresses) == (dns_server.SERVFAIL, ())


def test_a_healed_link_brings_new_addresses(world: World) -> None:
    world.link("up")
    until(lambda: world.ttl(SERVICE) <= 1)
    world.link("down")
    until(lambda: world.ttl(SERVICE) == STALE_TTL)
    world.addresses[SERVICE] = "10.96.8.8"
    world.link("up")
    until(lambda: (world.ask(SERVICE) or Answer(0)).addresses == ("10.96.8.8",))


def test_questions_of_pods_take_no_entry_of_the_connection_table(world: World) -> None:
    before = world.count("ironspan-dns", "questions")
    assert world.ask(SERVICE) is not None
    assert world.count("ironspan-dns", "questions") > before
    assert world.count("ironspan-dns", "answers") > 0
    assert world.count("test-tracked", "untracked") > 0
    assert world.count("test-tracked", "tracked") == 0


def test_stale_answers_last_as_long_as_the_configuration_says(world: World) -> None:
    """A day is what hosts get (test_dns.py of the roles); with seconds in its place the end is seen too."""
    text, count = re.subn("serve_stale 24h ", "serve_stale 25s ", quick(rendered("Corefile.j2")))
    assert count == 2
    world.link("up")
    world.start(text)
    for name in (SERVICE, OUTSIDE):
        until(functools.partial(lambda asked: 0 < world.ttl(asked) <= 1, name))
    world.link("down")
    for name in (SERVICE, OUTSIDE):
        until(functools.partial(lambda asked: world.ttl(asked) == STALE_TTL, name))
    for name in (SERVICE, OUTSIDE):
        until(functools.partial(lambda asked: world.ttl(asked) == 0, name))
