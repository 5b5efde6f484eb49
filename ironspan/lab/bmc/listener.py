# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How a BMC of the lab speaks: HTTP over TLS, and the faults that are of the connection."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import ssl
import threading
import typing as t

from ironspan.lab.bmc.faults import Fault, Faults
from ironspan.lab.bmc.resources import Document, error
from ironspan.lab.bmc.servers import Answer

_HUGE = 64 << 20


class Answering(t.Protocol):
    """Who answers."""

    faults: Faults

    def answer(self, method: str, target: str, body: Document | None, authorization: str) -> Answer:
        """Answer a request."""


class Listener(http.server.ThreadingHTTPServer):
    """TLS is spoken in the thread of each connection: one that says nothing holds up nobody."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: t.Any, context: ssl.SSLContext) -> None:
        self.context = context
        self.over = threading.Event()
        super().__init__(address, handler)

    def finish_request(self, request: t.Any, client_address: t.Any) -> None:
        """Speak TLS, then HTTP."""
        request.settimeout(60)
        with contextlib.suppress(OSError), self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)


def handler_of(front: Answering) -> type[http.server.BaseHTTPRequestHandler]:
    """Return what handles a connection to a BMC."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server: Listener

        def handle_one_request(self) -> None:
            with contextlib.suppress(OSError, ssl.SSLError):
                super().handle_one_request()
                return
            self.close_connection = True

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = self.rfile.read(length)
            fault = front.faults.of(self.command, self.path)
            if fault and not self._suffer(fault):
                return
            body = json.loads(content) if content else None
            if fault and fault.kind == "deaf":
                self._send(Answer(204))
                return
            answer = front.answer(self.command, self.path, body, self.headers.get("Authorization") or "")
            if fault and fault.kind == "reset-after":
                self._cut()
                return
            if fault and fault.kind == "500-after":
                answer = Answer(500, error("GeneralError", fault.message))
            self._send(answer)

        do_GET = do_PATCH = do_POST = do_DELETE = _do

        def _suffer(self, fault: Fault) -> bool:
            """Fail, and tell whether the request is to be answered all the same."""
            if fault.kind in ("401", "403", "500"):
                self._send(Answer(int(fault.kind), error("GeneralError", fault.message)))
            elif fault.kind == "reset":
                self._cut()
            elif fault.kind == "garbage":
                self._send_bytes(200, b"<html>busy</html>")
            elif fault.kind == "huge":
                self._send_bytes(200, b'"' + b"x" * _HUGE + b'"')
            elif fault.kind == "elsewhere":
                self.send_response(307)
                self.send_header("Location", f"https://192.0.2.7{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif fault.kind == "slow":
                self.server.over.wait(fault.seconds)
                return True
            else:
                return True
            return False

        def _cut(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def _send(self, answer: Answer) -> None:
            content = b"" if answer.body is None else json.dumps(answer.body).encode()
            self._send_bytes(answer.status, content, answer.location)

        def _send_bytes(self, status: int, content: bytes, location: str = "") -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: t.Any) -> None:
            """Say nothing: what it logs nobody reads."""

    return Handler
