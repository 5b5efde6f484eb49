# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small web server for this machine's own browser. It reads, and can do nothing else.

What keeps others out: it listens on loopback only; whoever is on this machine needs the key, which is made at
each start; a page of another origin that has its own name pointed here is refused by the name it asked for,
and one that just sends requests has no key. The key travels in the address's fragment, which is sent to
nobody, and then in a header.
"""

from __future__ import annotations

import hmac
import http.server
import ipaddress
import json
import re
import secrets
import threading
import time
import typing as t
from collections.abc import Callable

from ironspan.cli.outcome import CommandError, Exit
from ironspan.pages import live_page

MOST_STREAMS = 16
"""Browsers that follow at the same time."""
TICK_S = 1.0
"""How often a stream looks whether there is something new."""
ALIVE_S = 15.0
"""A stream says something at least this often, so that a browser that went away is noticed."""
_IDLE_S = 30.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_RUN = re.compile(r"/run/([A-Za-z0-9][A-Za-z0-9_.-]{0,150})")


class Source(t.Protocol):
    """Where the server has its pages from; its methods are called by several threads."""

    name: str
    """Of the site."""

    def site(self) -> str:
        """Return the page of the site."""
        ...

    def run(self, name: str) -> str | None:
        """Return the page of a run, None when there is none of this name."""
        ...

    def live(self) -> str:
        """Return what goes on, as elements."""
        ...

    def ended(self) -> str:
        """Return something that is another one whenever a run has ended."""
        ...


def insist_on_loopback(address: str) -> None:
    """Refuse addresses that others can reach.

    Raises:
        CommandError: it is none of this machine's own (exit 2).
    """
    try:
        local = ipaddress.ip_address(address).is_loopback
    except ValueError:
        local = False
    if not local:
        raise CommandError(
            f"{address} is no loopback address, and the pages are for this machine only",
            "write 127.0.0.1 or ::1; from elsewhere, ssh -L leads here",
            Exit.BAD_INPUT,
        )


class PageServer(http.server.ThreadingHTTPServer):
    """The server.

    Args:
        address: a loopback address.
        port: 0 for any that is free.
        source: of the pages.
        clock: seconds, monotonic.
    """

    daemon_threads = True

    def __init__(
        self, address: str, port: int, source: Source, clock: Callable[[], float] = time.monotonic
    ) -> None:
        insist_on_loopback(address)
        six = ":" in address
        if six:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__((address, port), _Handler)
        self.source = source
        self.clock = clock
        self.key = secrets.token_urlsafe(24)
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        self.ending = threading.Event()
        names = {f"[{address}]" if six else address, "localhost"}
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in names)
        self.url = f"http://{f'[{address}]' if six else address}:{self.server_port}/#key={self.key}"

    def shutdown(self) -> None:
        """End, streams too."""
        self.ending.set()
        super().shutdown()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "ironspan", ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """Answer; the name comes from the library."""
        if self.headers.get("Host") not in self.server.hosts:
            self._send(421, "text/plain", "This server answers to its own address only.")
        elif self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._send(403, "text/plain", "Not for other pages.")
        elif self.path == "/":
            self._send(200, "text/html", live_page.page(self.server.source.name))
        elif not self._has_key():
            self._send(401, "text/plain", "The key is missing or wrong.")
        elif self.path == "/site":
            self._send(200, "text/html", self.server.source.site())
        elif self.path == "/events":
            self._stream()
        elif (found := _RUN.fullmatch(self.path)) and (page := self.server.source.run(found[1])):
            self._send(200, "text/html", page)
        else:
            self._send(404, "text/plain", "There is no such page.")

    def _has_key(self) -> bool:
        wanted = f"Bearer {self.server.key}".encode()
        return hmac.compare_digest(self.headers.get("Authorization", "").encode(errors="replace"), wanted)

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode(errors="replace")
        self._head(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", live_page.policy())
        self.send_header("Content-Type", f"{kind}; charset=utf-8")

    def _stream(self) -> None:
        """Send what goes on whenever it differs from what was sent last."""
        if not self.server.streams.acquire(blocking=False):
            self._send(503, "text/plain", "Too many browsers follow already: close one.")
            return
        try:
            self._head(200, "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            self._follow()
        except OSError:
            pass  # the browser went away
        finally:
            self.server.streams.release()

    def _follow(self) -> None:
        source, live, ended, spoke = self.server.source, "", self.server.source.ended(), 0.0
        while not self.server.ending.wait(TICK_S if spoke else 0):
            now = self.server.clock()
            if (found := source.live()) != live:
                live = found
                self._event("live", json.dumps(live))
                spoke = now
            if (last := source.ended()) != ended:
                ended = last
                self._event("site", "{}")
                spoke = now
            if not spoke or now - spoke > ALIVE_S:
                self.wfile.write(b": alive\n\n")
                spoke = now
            self.wfile.flush()

    def _event(self, kind: str, data: str) -> None:
        self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: a browser's requests are no news."""
