# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 as spoken over a real socket: messages in a row, both kinds of bodies, nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from ironspan.lab.azure import http as served
from ironspan.lab.azure.http import Broken, Request, Response


async def _echo(request: Request) -> Response:
    if request.path == "/cut":
        raise Broken("told to")
    if request.path == "/wrong":
        raise RuntimeError("a defect")
    if request.path == "/stream":

        async def parts() -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

        return Response(200, {"transfer-encoding": "chunked"}, parts())
    if request.path == "/early":
        return Response(403, {}, b"no")  # the body stays unread
    body = await request.all()
    return Response(200, {"x-seen": f"{request.method} {request.path} {sorted(request.query.items())}"}, body)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server that answers with what it was asked."""
    loop = asyncio.new_event_loop()
    server, number = loop.run_until_complete(served.listen(_echo, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield number
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture
def client(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    yield connection
    connection.close()


def test_many_messages_on_one_connection(client: http.client.HTTPConnection) -> None:
    for number in range(5):
        body = b"z" * number * 100_000
        client.request("PUT", f"/a%20b/{number}?comp=block&x=", body)
        answer = client.getresponse()
        assert answer.read() == body
        assert answer.headers["x-seen"] == f"PUT /a b/{number} [('comp', 'block'), ('x', '')]"


def test_chunks_in_both_directions(client: http.client.HTTPConnection) -> None:
    client.request("PUT", "/a", iter([b"12", b"3456"]), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert client.getresponse().read() == b"123456"
    client.request("GET", "/stream")
    assert client.getresponse().read() == b"onetwo"


def test_an_answer_before_the_body_was_read_keeps_the_connection(client: http.client.HTTPConnection) -> None:
    for _ in range(2):
        client.request("PUT", "/early", b"y" * 300_000)
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (403, b"no")


@pytest.mark.parametrize("path", ["/cut", "/wrong"])
def test_a_cut_is_no_answer(client: http.client.HTTPConnection, path: str) -> None:
    client.request("GET", path)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        client.getresponse()
    client.close()
    client.request("GET", "/still-there")
    assert client.getresponse().status == 200


@pytest.mark.parametrize(
    "message",
    [
        b"nonsense\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nname : value\r\n\r\n",
        b"PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_nonsense_is_a_bad_request(port: int, message: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(message)
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_a_head_without_end_is_not_read_forever(port: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=120) as connection,
        contextlib.suppress(ConnectionError),  # cut while it is still being sent
    ):
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 500_000)
        assert connection.recv(12) in (b"HTTP/1.1 400", b"")
