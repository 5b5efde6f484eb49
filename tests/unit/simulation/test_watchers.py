# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A watch that the API server ended is opened again: it ends those that read too slowly."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import ssl
import threading
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.support.fake_api import server_files
from tests.support.simulation.watchers import watching

ANSWER = b"HTTP/1.1 200 OK\r\n\r\n"
PATIENCE = 120


class Server:
    """Ends every watch as soon as it is open, until it is closed; keeps what was asked."""

    def __init__(self, files: Path) -> None:
        self.asked: queue.Queue[str] = queue.Queue()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _peer = self._socket.accept()
                with plain, self._context.wrap_socket(plain, server_side=True) as stream:
                    self.asked.put(stream.recv(4096).split(b"\r\n")[0].decode())
                    stream.sendall(ANSWER)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Server, dict[str, t.Any]]]:
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "key"))
    store.ensure_cas()
    files = server_files(store, tmp_path, "api.test")
    authority = tmp_path / "ca"
    authority.write_text(store.ca("kubernetes").certificate_pem)
    made = Server(files)
    settings = {
        "address": "127.0.0.1",
        "port": made.port,
        "server_name": "api.test",
        "ca": str(authority),
        "certificate": str(files),
        "key": str(files),
        "nodes": 1,
        "pods": 0,
    }
    yield made, settings
    made.close()


def test_a_watch_that_was_ended_is_opened_again(server: tuple[Server, dict[str, t.Any]]) -> None:
    ends, settings = server
    with watching(settings):
        asked = [ends.asked.get(timeout=PATIENCE) for _ in range(3)]
    assert len(set(asked)) == 1
    assert asked[0].startswith("GET /api/v1/nodes?watch=1&")


def test_a_server_that_takes_no_watch_any_more_is_an_error(server: tuple[Server, dict[str, t.Any]]) -> None:
    ends, settings = server
    with pytest.raises(RuntimeError, match="could not be opened again"), watching(settings) as child:
        ends.asked.get(timeout=PATIENCE)
        ends.close()
        # It stays to be asked for its exit code.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
