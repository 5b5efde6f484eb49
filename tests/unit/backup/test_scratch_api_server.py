# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The API server of a drill has a port that nobody else can take before it listens there."""

from __future__ import annotations

import socket

import pytest

from ironspan.backup.rebuild.apiserver import held_port


def test_a_held_port_is_taken_by_a_program_that_shares_it_and_by_no_other() -> None:
    with held_port() as port, held_port() as another, socket.socket() as stranger, socket.socket() as server:
        assert port != another
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        # Every connection is the server's: what only holds the port does not listen.
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), 5):
                server.accept()[0].close()
