# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy on loopback that cuts or holds what comes back after a number of bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

_CHUNK = 64 << 10


class TcpProxy:
    """Hands on connections to one address.

    Args:
        host: where to.
        port: where to.
        limit: bytes of answers that pass on each connection; then ``then`` happens.
        then: ``cut`` ends the connection, ``hold`` lets nothing more through.
    """

    def __init__(self, host: str, port: int, limit: int, then: Literal["cut", "hold"]) -> None:
        self._target = (host, port)
        self._limit = limit
        self._then = then
        self.reached = threading.Event()
        """Set once an answer was longer."""
        self._closed = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> TcpProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        for one in (self._listener, *self._sockets):
            _end(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for source, sink, limit in ((client, server, None), (server, client, self._limit)):
                    threading.Thread(target=self._pass, args=(source, sink, limit), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if limit is not None and passed + len(data) > limit:
                    sink.sendall(data[: limit - passed])
                    self.reached.set()
                    if self._then == "hold":
                        self._closed.wait()
                    break
                sink.sendall(data)
                passed += len(data)
        _end(source)
        _end(sink)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
