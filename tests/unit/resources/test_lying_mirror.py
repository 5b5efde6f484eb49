# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A mirror that lies, stammers or is not there: refused with what to do, and the host is as it was."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _download

from tests.support.faults import insist

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

DATA = bytes(range(256)) * 40
WRONG = bytes([DATA[0] ^ 1]) + DATA[1:]
HTML = b"<html><title>Sign in to the network</title></html>"
Serve = Callable[[socket.socket], None]


def head(length: int, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n".encode()


def sends(*parts: bytes) -> Serve:
    """Return a server that sends this and closes the connection."""
    return lambda connection: connection.sendall(b"".join(parts))


def trickles(connection: socket.socket) -> None:
    """Promise all, and send a byte at a time."""
    connection.sendall(head(len(DATA)))
    for number in range(len(DATA)):
        connection.sendall(DATA[number : number + 1])
        time.sleep(0.02)


def keeps_open(connection: socket.socket) -> None:
    """Send all, and do not close the connection."""
    connection.sendall(head(len(DATA)) + DATA)
    time.sleep(120)


@contextlib.contextmanager
def mirror(serve: Serve) -> t.Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def work(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            serve(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=work, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


TOOL = {
    "kind": "artifact",
    "id": "tool",
    "path": "/opt/tool",
    "url_path": "/tool",
    "sha256": hashlib.sha256(DATA).hexdigest(),
    "size": len(DATA),
}


@pytest.mark.parametrize(
    ("name", "serve"),
    [
        ("mirror-wrong", sends(head(len(DATA)), WRONG)),
        ("mirror-html", sends(head(len(HTML)), HTML)),
        ("mirror-html", sends(b"HTTP/1.0 200 OK\r\n\r\n", HTML)),
        ("mirror-missing", sends(head(0, "404 Not Found"))),
        ("mirror-short", sends(head(len(DATA)), DATA[:-1])),
        ("mirror-slow", trickles),
    ],
)
def test_lies_are_refused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, name: str, serve: Serve) -> None:
    monkeypatch.setattr(_download, "ATTEMPTS", 1)
    if serve is trickles:
        monkeypatch.setattr(_download, "TIMEOUT_SECONDS", 0.4)
    sandbox.put("opt/tool", b"former", 0o755)
    before = sandbox.snapshot()
    with mirror(serve) as url:
        result = sandbox.run(TOOL, mirror=url)
    insist(name, result["msg"])
    assert sandbox.snapshot() == before


def test_nobody_answers(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "ATTEMPTS", 1)
    with mirror(sends()) as url:
        pass
    insist("mirror-down", sandbox.run(TOOL, mirror=url)["msg"])


def test_a_mirror_that_does_not_close_is_not_waited_for(sandbox: Sandbox) -> None:
    began = time.monotonic()
    with mirror(keeps_open) as url:
        assert sandbox.changed(TOOL, mirror=url) == ["tool"]
    assert time.monotonic() - began < 60
