# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TCP between two nodes: several connections at once, each byte of which is looked at."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

STREAMS = 4
TOKEN_BYTES = 32
MARK = b"\x00"
"""A token begins with it; TLS never does."""
BLOCK = 1 << 20
SILENT_S = 15.0
"""Seconds after which a connection on which nothing comes has failed."""


@dataclass(frozen=True, slots=True)
class Received:
    """What came through.

    Args:
        gbits: billions of bits a second, of all streams.
        wrong: blocks in which a bit is wrong.
    """

    gbits: float
    wrong: int


@contextlib.contextmanager
def listening(address: str, port: int) -> Iterator[socket.socket]:
    """Listen while the block runs.

    Raises:
        OSError: the port is taken, or the address is not this host's.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family, backlog=16) as server:
        yield server


def accepted(server: socket.socket, token: bytes) -> list[socket.socket]:
    """Return the connections that bring the token; others are closed.

    Raises:
        OSError: not all came in time.
    """
    found: list[socket.socket] = []
    end = time.monotonic() + SILENT_S
    while len(found) < STREAMS:
        server.settimeout(max(0.01, end - time.monotonic()))
        connection, _ = server.accept()
        connection.settimeout(SILENT_S)
        with contextlib.suppress(OSError):
            if hmac.compare_digest(_exactly(connection, len(token)), token):
                found.append(connection)
                continue
        connection.close()
    return found


def opened(to: tuple[str, int], token: bytes) -> list[socket.socket]:
    """Return connections that have brought the token.

    Raises:
        OSError: there are none.
    """
    found = []
    for _ in range(STREAMS):
        connection = socket.create_connection(to, SILENT_S)
        connection.sendall(token)
        found.append(connection)
    return found


def pattern(seed: bytes) -> bytes:
    """Return the block that is sent again and again."""
    return hashlib.shake_128(seed).digest(BLOCK)


def sent(connections: Sequence[socket.socket], seed: bytes, seconds: float) -> None:
    """Send whole blocks on all connections for a while; then nothing more goes that way.

    Raises:
        OSError: a connection has failed.
    """
    block, end = memoryview(pattern(seed)), time.monotonic() + seconds

    def send(connection: socket.socket) -> None:
        connection.sendall(block)
        while time.monotonic() < end:
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)

    _each(connections, send)


def received(connections: Sequence[socket.socket], seed: bytes) -> Received:
    """Receive on all connections until nothing more comes.

    Raises:
        OSError: a connection has failed, or ended in the middle of a block.
    """
    wanted, counts, times = pattern(seed), [0] * len(connections), [0.0] * len(connections)
    wrong = [0] * len(connections)
    places = {connection: index for index, connection in enumerate(connections)}

    def receive(connection: socket.socket) -> None:
        index, buffer = places[connection], bytearray(BLOCK)
        view, start, had = memoryview(buffer), 0.0, 0
        while count := connection.recv_into(view[had:]):
            start = start or time.monotonic()
            had += count
            counts[index] += count
            if had == BLOCK:
                wrong[index] += buffer != wanted
                had = 0
        times[index] = time.monotonic() - start if start else 0.0
        if had or not start:
            raise OSError("a connection ended in the middle of a block")

    _each(connections, receive)
    return Received(sum(counts) * 8 / max(*times, 1e-6) / 1e9, sum(wrong))


def _each(connections: Sequence[socket.socket], do: Callable[[socket.socket], None]) -> None:
    errors: list[OSError] = []

    def one(connection: socket.socket) -> None:
        try:
            do(connection)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(each,), daemon=True) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length and (more := connection.recv(length - len(found))):
        found += more
    return found
