# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A connection to a member, plain or TLS, that one thread reads and any other may interrupt."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import threading
import time
import typing as t
import urllib.parse

from ironspan.etcd.channel import Tls, no_endpoint, parted

CONNECT_S = 5.0
"""Seconds for the connection and TLS's handshake together."""
_RECEIVE = 256 << 10


class Cancelled(Exception):
    """``cancel`` was called."""


class Connection:
    """Bytes to and from a member. One thread opens, waits, reads, writes and closes.

    Args:
        endpoint: ``https://ADDRESS:PORT``, ``http://ADDRESS:PORT``, or ``unix:///PATH`` of its socket.
        tls: needed for https.

    Raises:
        EtcdError: the endpoint is no such URL, or a TLS file is missing or cannot be read.
    """

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        scheme, target = parted(endpoint, tls)
        self._path = target if scheme == "unix" else ""
        self.authority = "localhost" if self._path else target
        try:
            url = urllib.parse.urlsplit(f"//{self.authority}")
            self._host, self._port = url.hostname, url.port
        except ValueError as error:
            raise no_endpoint(endpoint) from error
        if not self._path and not (self._host and self._port):
            raise no_endpoint(endpoint)
        self.scheme = "https" if scheme == "https" else "http"
        self._context = tls.context() if tls and scheme == "https" else None
        self._socket: socket.socket | None = None
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._waits = select.poll()
        self._waits.register(self._bell, select.POLLIN)
        self._ringer.setblocking(False)
        self._lock = threading.Lock()
        self._cancelled = False

    # -- any thread --------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """End a ``wait``, or the next one."""
        # It rings already, or it is closed. The lock: a closed socket's number may be another's at once.
        with self._lock, contextlib.suppress(OSError):
            self._ringer.send(b"!")

    def cancel(self) -> None:
        """Let whatever waits, now or later, raise ``Cancelled``."""
        self._cancelled = True
        self.interrupt()

    # -- the reading thread ------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, and shake hands where it is TLS.

        Raises:
            OSError: it failed, also by TLS (``ssl.SSLError``).
        """
        end = time.monotonic() + CONNECT_S
        family: int = socket.AF_UNIX
        address: t.Any = self._path
        if not self._path:
            family, *_, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
        self._socket = plain = socket.socket(family, socket.SOCK_STREAM)
        plain.setblocking(False)
        if not self._path:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = plain.connect_ex(address)
        if code == errno.EINPROGRESS:
            self._wait_in_time(select.POLLOUT, end)
            code = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self._context:
            self._shake_hands(self._context, plain, end)

    def _shake_hands(self, context: ssl.SSLContext, plain: socket.socket, end: float) -> None:
        secure = context.wrap_socket(plain, server_hostname=self._host, do_handshake_on_connect=False)
        self._socket = secure
        while True:
            try:
                return secure.do_handshake()
            except ssl.SSLWantReadError:
                self._wait_in_time(select.POLLIN, end)
            except ssl.SSLWantWriteError:
                self._wait_in_time(select.POLLOUT, end)

    def _wait_in_time(self, mask: int, end: float) -> None:
        while not self._poll(mask, end - time.monotonic()):
            if time.monotonic() >= end:
                raise TimeoutError(None, "no answer in time")

    def wait(self) -> bool:
        """Wait for something to read, or until interrupted, and return whether there is something."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return self._poll(select.POLLIN, None)

    def pause(self, seconds: float) -> None:
        """Let come what comes for some seconds, or until interrupted."""
        self._poll(0, seconds)

    def _poll(self, mask: int, seconds: float | None) -> bool:
        if self._socket is not None:
            self._waits.register(self._socket, mask)
        ready = dict(self._waits.poll(None if seconds is None else max(0.0, seconds) * 1000))
        if self._bell.fileno() in ready:
            self._bell.recv(1024)
        if self._cancelled:
            raise Cancelled
        return self._socket is not None and self._socket.fileno() in ready

    def read(self, size: int) -> bytes | None:
        """Return what has come, about ``size`` bytes at most.

        Returns:
            None where nothing has come: what ``wait`` saw may have been TLS's own. Nothing, ``b""``, where
            the other side has ended it.
        """
        assert self._socket is not None
        secure = isinstance(self._socket, ssl.SSLSocket)  # Its parts are TLS's, one at a time.
        parts: list[bytes] = []
        try:
            while size > 0 and (part := self._socket.recv(_RECEIVE)):
                parts.append(part)
                size -= len(part)
                if len(part) < _RECEIVE and not secure:
                    break
        except (BlockingIOError, ssl.SSLWantReadError):
            if not parts:
                return None
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        """Send all of it."""
        assert self._socket is not None
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._poll(select.POLLOUT, None)

    def close(self) -> None:
        """End the connection; what other threads call afterwards does nothing."""
        with self._lock:
            for one in (self._socket, self._bell, self._ringer):
                if one is not None:
                    one.close()
