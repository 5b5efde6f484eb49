# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The proxy's connections to Azurite."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator

from ironspan.lab.azure.http import LIMIT, Broken, Request, Response, body_of, no_body, read_head

#: Azurite closes what idles for 5 s; a connection that could be closing any moment is not used again. The
#: rest is for a busy machine, on which an answer is read seconds after Azurite has begun to count.
_FRESH_S = 1.0
#: Headers of one hop only (RFC 9110, 7.6.1).
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})

#: Of the Blob service's REST interface; what Azurite 3.37 knows.
VERSION = "2025-11-05"

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Upstream:
    """A pool of kept-alive TLS connections to one server."""

    def __init__(self, address: str, port: int, tls: ssl.SSLContext) -> None:
        self._address, self._port, self._tls = address, port, tls
        self._idle: list[tuple[float, _Streams]] = []

    async def _connect(self) -> _Streams:
        while self._idle:
            since, streams = self._idle.pop()
            if time.monotonic() - since < _FRESH_S and not streams[0].at_eof():
                return streams
            streams[1].close()
        try:
            return await asyncio.open_connection(
                self._address, self._port, ssl=self._tls, limit=LIMIT, server_hostname=self._address
            )
        except OSError as error:
            raise Broken(f"Azurite does not answer: {error}") from error

    async def send(self, request: Request) -> Response:
        """Hand a request on and return the answer, whose body comes as it arrives.

        Raises:
            Broken: Azurite does not answer.
        """
        reader, writer = await self._connect()
        try:
            await self._write(writer, request)
            head = await read_head(reader)
        except BaseException as error:  # half a request may be under way: nobody can use the connection again
            writer.transport.abort()
            if isinstance(error, OSError | asyncio.IncompleteReadError):
                raise Broken(f"Azurite broke off: {error}") from error
            raise
        if head is None:
            writer.transport.abort()
            raise Broken("Azurite closed the connection")
        first, headers = head
        status = int(first.split(" ")[1])
        announced = request.method == "HEAD"
        chunked = "chunked" in headers.get("transfer-encoding", "")
        kept = {name: value for name, value in headers.items() if name not in _HOP}
        if chunked:
            kept["transfer-encoding"] = "chunked"
        response = Response(status, kept, b"", announced)
        if response.empty or (not chunked and headers.get("content-length", "0") == "0"):
            self._release((reader, writer), headers)
        else:
            response.body = self._stream((reader, writer), headers)
        return response

    async def ask(self, method: str, target: str, host: str, token: str) -> Response:
        """Ask Azurite something of the lab's own; the request has no body.

        Raises:
            Broken: Azurite does not answer.
        """
        headers = {
            "host": host,
            "authorization": f"Bearer {token}",
            "x-ms-version": VERSION,
            "content-length": "0",
        }
        return await self.send(Request(method, target, headers, no_body()))

    async def _write(self, writer: asyncio.StreamWriter, request: Request) -> None:
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        chunked = "content-length" not in headers and "transfer-encoding" in request.headers
        if chunked:
            headers["transfer-encoding"] = "chunked"
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        async for part in request.body:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _stream(self, streams: _Streams, headers: dict[str, str]) -> AsyncIterator[bytes]:
        body = body_of(streams[0], headers)
        try:
            async for part in body:
                yield part
        finally:
            if body.done:
                self._release(streams, headers)
            else:
                streams[1].transport.abort()

    def _release(self, streams: _Streams, headers: dict[str, str]) -> None:
        if headers.get("connection", "").lower() == "close":
            streams[1].close()
        else:
            self._idle.append((time.monotonic(), streams))
