# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""As much of HTTP/1.1 as the emulated services need, on asyncio streams; bodies are never held whole."""

from __future__ import annotations

import asyncio
import contextlib
import http
import socket
import ssl
import sys
import traceback
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

#: Bytes handed on at a time.
CHUNK = 1 << 18
#: What a stream buffers before it makes the sender wait; request and header lines have to fit in, too.
LIMIT = 1 << 19
_NO_BODY = frozenset({204, 304})


class Malformed(Exception):
    """The peer does not speak HTTP/1.1 as RFC 9112 has it."""


class Broken(Exception):
    """The connection is to be cut without an answer."""


class Body:
    """A message's body: read once, as chunks."""

    def __init__(self, reader: asyncio.StreamReader, length: int | None) -> None:
        self._reader = reader
        self._left = length
        #: None for a body in chunks, whose length nobody knows before its end.
        self.length = length
        self.done = length == 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._left is None:
            while not self.done:
                size = int((await self._reader.readline()).partition(b";")[0] or b"-", 16)
                if size:
                    yield await self._reader.readexactly(size)
                else:
                    self.done = True
                await self._reader.readline()
            return
        while self._left:
            data = await self._reader.read(min(CHUNK, self._left))
            if not data:
                raise asyncio.IncompleteReadError(b"", self._left)
            self._left -= len(data)
            self.done = not self._left
            yield data

    async def all(self) -> bytes:
        """Return the whole body; for requests that are small by nature."""
        return b"".join([part async for part in self])

    async def drain(self) -> None:
        """Read what nobody wanted, so that the connection can carry the next message."""
        async for _ in self:
            pass


async def no_body() -> AsyncIterator[bytes]:
    """The body of a request that has none."""
    return
    yield b""


@dataclass
class Request:
    """One request; header names are in lower case, `path` is decoded.

    Attributes:
        peer: Address that it came from.
        local: Address that it came to.
        private: Ids, in lower case, of what the private endpoint leads to that it came by.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: Body | AsyncIterator[bytes]
    peer: str = ""
    local: str = ""
    private: frozenset[str] = frozenset()
    path: str = field(init=False)
    query: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        raw, _, query = self.target.partition("?")
        self.path = urllib.parse.unquote(raw)
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    async def drain(self) -> None:
        """Read the rest of the body."""
        async for _ in self.body:
            pass

    async def all(self) -> bytes:
        """Return the whole body."""
        return b"".join([part async for part in self.body])


@dataclass
class Response:
    """One answer; a body that is not bytes has its length in the headers, or is cut off by the end."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""
    #: HEAD: the length of a body that does not come.
    announced: bool = False

    @property
    def empty(self) -> bool:
        """Whether no body follows the headers."""
        return self.announced or self.status in _NO_BODY


Handler = Callable[[Request], Awaitable[Response]]


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    """Return a message's first line and its headers (names in lower case); None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise Malformed("the head of the message is cut off") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise Malformed("the head of the message is too long") from error
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise Malformed(f"no header: {line[:80]!r}")
        headers[name.lower()] = value.strip()
    return first, headers


def body_of(reader: asyncio.StreamReader, headers: dict[str, str], default: int = 0) -> Body:
    """Return the body that the headers announce; `default` is its length when they announce none."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Body(reader, None)
    text = headers.get("content-length", str(default))
    if not text.isdecimal():
        raise Malformed(f"Content-Length {text[:40]!r}")
    return Body(reader, int(text))


async def _read_request(reader: asyncio.StreamReader, peer: str, local: str) -> Request | None:
    head = await read_head(reader)
    if head is None:
        return None
    first, headers = head
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise Malformed(f"no request line: {first[:80]!r}")
    return Request(parts[0], parts[1], headers, body_of(reader, headers), peer, local)


async def write_response(writer: asyncio.StreamWriter, response: Response) -> None:
    """Send the answer, its body as it comes."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    if isinstance(response.body, bytes) and not response.announced:
        headers["content-length"] = str(len(response.body))
    reason = http.HTTPStatus(response.status).phrase if response.status in http.HTTPStatus else ""
    lines = [f"HTTP/1.1 {response.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    if not response.empty:
        if isinstance(response.body, bytes):
            writer.write(response.body)
        else:
            chunked = "chunked" in headers.get("transfer-encoding", "")
            async for part in response.body:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
            if chunked:
                writer.write(b"0\r\n\r\n")
    await writer.drain()


def connection_handler(
    handler: Handler,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Return what asyncio calls for a connection: it serves requests until the peer has no more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, local = (
            str(name[0]) if (name := writer.get_extra_info(which)) else ""
            for which in ("peername", "sockname")
        )
        try:
            while (request := await _read_request(reader, peer, local)) is not None:
                response = await handler(request)
                await write_response(writer, response)
                await request.drain()
                if request.headers.get("connection", "").lower() == "close":
                    break
        except Broken:
            writer.transport.abort()
        except Malformed as error:
            with contextlib.suppress(OSError):
                await write_response(writer, Response(400, {"connection": "close"}, str(error).encode()))
        except (OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            writer.transport.abort()
        except Exception:  # one request must not end the service
            traceback.print_exc(file=sys.stderr)
            writer.transport.abort()
        finally:
            with contextlib.suppress(Exception):
                writer.close()

    return serve


async def listen(
    handler: Handler, address: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.Server, int]:
    """Serve `handler` on an address.

    Args:
        handler: Answers requests.
        address: IPv4 address.
        port: TCP port; 0 for one that is free.
        tls: Server context, or None for plain HTTP.

    Returns:
        The server and its port.
    """
    listener = socket.create_server((address, port), backlog=128)
    # Inherited by its connections, as asyncio does it for sockets of its own making: a body that follows its
    # head would wait 40 ms for the peer's delayed acknowledgement (RFC 1122, 4.2.3.2 and 4.2.3.4).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    server = await asyncio.start_server(connection_handler(handler), sock=listener, ssl=tls, limit=LIMIT)
    return server, listener.getsockname()[1]
