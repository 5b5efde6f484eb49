# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One rule of an internal load balancer: probes of its members, and connections passed on to them.

Like Azure's it chooses a member by the connection's two ends, and never leads a member to itself: such a
connection gets no answer. Unlike Azure's it opens a connection of its own: members see the router's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import zlib

from ironspan.lab.azure.arm.reach import Balance, Probe

_CHUNK = 1 << 16
_CONNECT_S = 5.0
#: The least that a member may take to answer a probe.
_PATIENCE_S = 5.0


def choose(members: tuple[str, ...], healthy: set[str], client: str, port: int) -> str:
    """Return the member that a connection goes to; "" when none takes any.

    Args:
        members: Addresses of all.
        healthy: Those that the probe has found to take connections.
        client: Address that the connection comes from.
        port: And its port.
    """
    there = [one for one in members if one in healthy]
    return there[zlib.crc32(f"{client}:{port}".encode()) % len(there)] if there else ""


class Health:
    """What the probe thinks of one member; down until it has answered often enough."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._differing = 0
        self.up = False

    def seen(self, answered: bool) -> None:
        """Take note of one answer, or of none."""
        self._differing = self._differing + 1 if answered != self.up else 0
        if self._differing >= self._threshold:
            self.up, self._differing = answered, 0


async def ask(probe: Probe, address: str) -> bool:
    """Ask a member whether it takes connections; certificates are not looked at, as Azure does not."""
    tls = None
    if probe.protocol.lower() == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(max(probe.every_s, _PATIENCE_S)):
            reader, writer = await asyncio.open_connection(address, probe.port, ssl=tls)
            try:
                if probe.protocol.lower() == "tcp":
                    return True
                question = f"GET {probe.path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
                writer.write(question.encode())
                return (await reader.readline()).split(b" ")[1:2] == [b"200"]
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
        return False


class Balancer:
    """A rule at work; its members may change, its front end and probe do not."""

    def __init__(self, rule: Balance) -> None:
        self.rule = rule
        self._health: dict[str, Health] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, and begin to ask members."""
        self._server = await asyncio.start_server(self._pass, self.rule.address, self.rule.port)
        self.follow(self.rule)

    def follow(self, rule: Balance) -> None:
        """Take members in and let others go; connections that there are go on."""
        self.rule = rule
        for gone in set(self._probes) - set(rule.members):
            self._probes.pop(gone).cancel()
            del self._health[gone]
        for new in set(rule.members) - set(self._probes):
            self._health[new] = Health(rule.probe.threshold if rule.probe else 1)
            self._probes[new] = asyncio.create_task(self._watch(new))

    def close(self) -> None:
        """Stop listening and asking, and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in (*self._probes.values(), *self._tasks):
            task.cancel()

    @property
    def healthy(self) -> set[str]:
        """Members that take connections."""
        return {address for address, one in self._health.items() if one.up}

    async def _watch(self, address: str) -> None:
        health, probe = self._health[address], self.rule.probe
        if probe is None:
            health.seen(True)
            return
        while True:
            health.seen(await ask(probe, address))
            await asyncio.sleep(probe.every_s)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, TimeoutError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, port = writer.get_extra_info("peername")[:2]
        member = choose(self.rule.members, self.healthy, client, port)
        if member == client:
            while await reader.read(_CHUNK):  # to itself: nothing comes back, for as long as it waits
                pass
            return
        if not member:
            return
        async with asyncio.timeout(_CONNECT_S):
            there, back = await asyncio.open_connection(member, self.rule.member_port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, back))
                both.create_task(_pump(there, writer))
        except* OSError:
            pass
        finally:
            back.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
