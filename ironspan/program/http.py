# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of programs: plain or with TLS, each request in a thread of its own, no resolver asked."""

from __future__ import annotations

import logging
import socket
import socketserver
import ssl
import sys
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ironspan.program.listen import Listen

LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
"""For who asks and then says nothing."""


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: Prometheus asks every few seconds."""


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Serves a WSGI application (``set_app``).

    Args:
        at: where; port 0 for one that the system chooses.

    Raises:
        OSError: the address cannot be listened on, or the certificate cannot be used.
    """

    daemon_threads = True

    def __init__(self, at: Listen) -> None:
        self.address_family = socket.AF_INET6 if ":" in at.address else socket.AF_INET
        super().__init__((at.address, at.port), _Handler)
        if at.certificate:
            try:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(at.certificate, at.key)
            except OSError:
                self.server_close()
                raise
            # The handshake is left to the thread that answers: who does not finish one keeps nobody waiting.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def server_bind(self) -> None:
        """Bind without asking the resolver for this host's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say little about who went away or spoke no HTTP."""
        LOG.debug("request of %s: %s", client_address, sys.exception())
