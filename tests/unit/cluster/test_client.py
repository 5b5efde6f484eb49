# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How the client behaves towards a server that is busy, absent or talks nonsense."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
import types
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import client as client_module
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
    UnreachableError,
)

Answer = tuple[int, bytes]


@contextlib.contextmanager
def server(answers: list[Answer]) -> Iterator[tuple[str, list[str]]]:
    """Answer requests one after the other, the last answer for ever; yields the URL and what was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: t.Any) -> None:
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", asked
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def client(url: str, patience: float = 120) -> Api:
    return Api(url, ssl.create_default_context(), None, patience)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_busy_server_is_asked_again(status: int) -> None:
    with server([(status, b"busy"), (status, b"{}"), (200, b'{"a": 1}')]) as (url, asked):
        assert client(url).get("/x", limit="5") == {"a": 1}
    assert asked == ["/x?limit=5"] * 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_refusal_is_final(status: int) -> None:
    body = b'{"kind": "Status", "reason": "Why", "message": "because"}'
    with server([(status, body)]) as (url, asked):
        with pytest.raises(ApiError) as caught:
            client(url).get("/x")
        assert len(asked) == 1
    assert (caught.value.status, caught.value.reason) == (status, "Why")
    assert f"GET /x: because (HTTP {status})" in str(caught.value)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time go by in the client's pauses alone, at once; return them."""
    pauses: list[float] = []
    clock = types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(client_module, "time", clock)
    return pauses


def test_patience_ends(waited: list[float]) -> None:
    with server([(503, b"still busy")]) as (url, asked):
        with pytest.raises(ApiError, match="still busy"):
            client(url, patience=10).get("/x")
        assert len(asked) == len(waited) + 1 > 2
    assert 5 < sum(waited) <= 10


def test_no_patience_is_one_attempt() -> None:
    with server([(503, b"busy")]) as (url, asked), pytest.raises(ApiError):
        client(url).request("GET", "/x", patience=0)
    assert len(asked) == 1


def test_nobody_there() -> None:
    with server([(200, b"")]) as (url, _):
        pass
    expected = r"cannot be reached: Failed .*: Connection refused\. Check .*\(ironspan status\)"
    with pytest.raises(ClusterError, match=expected):
        client(url, patience=0.5).get("/x")


@pytest.mark.parametrize("body", [b"", b"<html>", b"{"])
def test_answer_that_is_no_json(body: bytes) -> None:
    with server([(200, body)]) as (url, _), pytest.raises(ClusterError, match="is no JSON"):
        client(url).get("/x")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"\xff\xfe", b""])
def test_error_without_a_status_object(body: bytes) -> None:
    with server([(400, body)]) as (url, _), pytest.raises(ApiError, match="HTTP 400"):
        client(url).get("/x")


@pytest.mark.parametrize("first", [b"", b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.0 503 no server\r\n\r\n"])
def test_load_balancer_without_a_server_is_not_taken_for_a_stranger(
    first: bytes, waited: list[float]
) -> None:
    """It closes the connection, alerts, or talks plain HTTP where TLS is expected."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(120)
        connections = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connections.append(connection.recv(10000))
                    connection.sendall(first)
                    connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(UnreachableError, match="cannot be reached"):
            client(f"https://127.0.0.1:{listener.getsockname()[1]}", patience=1).get("/x")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert len(connections) > 1, "it was asked again"
