# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Network namespaces with veth pairs between them, and sockets that live in them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import uuid
from collections.abc import Iterator

from ironspan.lab import network

PREFIX = "ise"


class Namespaces:
    """Namespaces of one test, removed at its end. Names are short and belong to this test alone."""

    def __init__(self) -> None:
        self._prefix = f"{PREFIX}{uuid.uuid4().hex[:6]}"
        self._made: list[str] = []

    def add(self, name: str) -> None:
        """Make a namespace with its loopback interface up."""
        run("ip", "netns", "add", self.full(name))
        self._made.append(name)
        self.ip(name, "link set lo up")

    def full(self, name: str) -> str:
        """Return the name that iproute2 knows."""
        return f"{self._prefix}-{name}"

    def ip(self, name: str, *commands: str) -> None:
        """Run commands of iproute2 in a namespace, in one go."""
        run("ip", "-n", self.full(name), "-batch", "-", text="\n".join(commands) + "\n")

    def nft(self, name: str, text: str) -> None:
        """Load rules in a namespace."""
        run("ip", "netns", "exec", self.full(name), "nft", "-f", "-", text=text)

    def run(self, name: str, *argv: str) -> str:
        """Run a program in a namespace and return what it says."""
        return run("ip", "netns", "exec", self.full(name), *argv)

    def pair(self, left: tuple[str, str], right: tuple[str, str]) -> None:
        """Join two namespaces, each given as (namespace, interface), with a veth pair that is up."""
        ours = {"name": left[1], "netns": self.full(left[0])}
        theirs = {"name": right[1], "netns": self.full(right[0])}
        run("ip", "link", "add", *_words(ours), "type", "veth", "peer", *_words(theirs))
        for namespace, interface in (left, right):
            self.ip(namespace, f"link set {interface} up")

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Put this thread into a namespace; sockets made meanwhile stay there."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.full(name)}", os.O_RDONLY)
        try:
            os.setns(there, os.CLONE_NEWNET)
            yield
        finally:
            os.setns(before, os.CLONE_NEWNET)
            os.close(there)
            os.close(before)

    def socket(self, name: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a socket of a namespace."""
        with self.inside(name):
            return socket.socket(family, kind, protocol)

    def close(self) -> None:
        """Remove the namespaces and everything in them."""
        for name in self._made:
            # The last one takes the folder of all along, as a lab does.
            network.remove_namespace(self.full(name))


def run(*argv: str, text: str = "") -> str:
    """Run a program and return its output; what it complains about is part of the exception."""
    done = subprocess.run(argv, input=text, text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}\n{text}"
    return done.stdout


def usable() -> bool:
    """Tell whether this process may make namespaces."""
    return os.geteuid() == 0 and pathlib.Path("/proc/self/ns/net").exists()


def _words(pairs: dict[str, str]) -> list[str]:
    return [word for pair in pairs.items() for word in pair]
