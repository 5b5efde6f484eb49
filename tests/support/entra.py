# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Entra ID of the lab on loopback, in a thread: discovery and keys over TLS, and tokens of people."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.declared import Identity

from ironspan.lab.azure import certificates, http, people, settings
from ironspan.lab.azure.config import authority, server
from ironspan.lab.azure.identity import Login
from ironspan.lab.azure.world import World


@dataclasses.dataclass(frozen=True)
class Entra:
    """A running issuer."""

    world: World
    issuer: str
    ca: str

    def token(self, person: people.Person, fault: str = "") -> str:
        """Return a token for the cluster."""
        return people.token(self.world, person, self.issuer, fault)

    def identity(self) -> Identity:
        """Return the identity variables of a site that trusts this issuer."""
        return Identity(settings.TENANT, (people.APPLICATION,), self.issuer, self.ca)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Entra]:
    """Serve the endpoints on a free port of 127.0.0.1; `folder` holds keys and certificates."""
    (folder / "keys").mkdir(parents=True)
    certificates.ensure(folder, settings.NAMES, ["127.0.0.1"])
    world = World(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*server(folder))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started = asyncio.run_coroutine_threadsafe(http.listen(Login(world), "127.0.0.1", 0, tls), loop)
    listening, port = started.result(20)
    try:
        yield Entra(world, people.issuer(f"127.0.0.1:{port}"), authority(folder).read_text())
    finally:
        loop.call_soon_threadsafe(listening.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
