# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A gRPC stream that one thread reads, and as often as its reader chooses to.

With grpcio every message of a watch wakes three threads one after the other, as often as etcd writes and on
the processors that etcd wants just then. Here it is one thread, and the kernel keeps what comes until it is
time to read it.

HTTP/2 is h2's; how messages and the end of a stream are written into it says "gRPC over HTTP2" (the gRPC
project, doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import collections
import ssl
import struct
import time
import urllib.parse
from collections.abc import Sequence

import grpc
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from ironspan.etcd.channel import MESSAGE_MAX, Tls, problem
from ironspan.etcd.connection import Cancelled, Connection
from ironspan.etcd.errors import EtcdError, Unreachable

WINDOW = 2 << 20
"""Bytes that the other side may send before they are read."""
READ_BYTES = 1 << 20
"""Bytes that are read at once, about."""
_HEAD = struct.Struct(">BI")  # whether it is compressed, bytes of the message
_CODES = {str(code.value[0]): code for code in grpc.StatusCode}


class Stream:
    """One stream of messages to and from a member, on a connection of its own.

    One thread calls ``receive`` and ``close``; ``send`` and ``cancel`` may be called by any.

    Args:
        endpoint: see ``Connection``.
        tls: needed for https.
        method: ``SERVICE/METHOD``.
        metadata: what the call carries besides.
        pause_s: seconds from one reading to the next one, at least.

    Raises:
        EtcdError: the endpoint is no such URL, or a TLS file is missing or cannot be read.
    """

    def __init__(
        self,
        endpoint: str,
        tls: Tls | None,
        method: str,
        metadata: Sequence[tuple[str, str]] = (),
        pause_s: float = 0.0,
    ) -> None:
        self.endpoint = endpoint
        self._method = method
        self._metadata = metadata
        self._pause = pause_s
        self._connection = Connection(endpoint, tls)
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._id = 0
        self._to_send: collections.deque[bytes] = collections.deque()
        self._received = bytearray()
        self._end: EtcdError | None = None
        self._next_reading = 0.0

    def send(self, message: bytes) -> None:
        """Send a message, as soon as ``receive`` is called."""
        self._to_send.append(message)
        self._connection.interrupt()

    def cancel(self) -> None:
        """End the stream: ``receive`` raises, now or when it is called."""
        self._connection.cancel()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def receive(self) -> list[bytes]:
        """Return the messages that have come since the last call, in order; waits for the first one.

        Raises:
            Unreachable: the stream broke or was cancelled; another member may serve.
            EtcdError: the other side ended it for another reason.
        """
        try:
            if not self._id:
                self._open()
            while not (messages := self._messages()):
                if self._end is not None:
                    raise self._end
                self._step()
            self._next_reading = time.monotonic() + self._pause
            return messages
        except Cancelled:
            raise self._broken("it was cancelled") from None
        except (h2.exceptions.ProtocolError, UnicodeDecodeError) as error:
            raise self._broken(f"that is no HTTP/2 ({error})") from error
        except ssl.SSLError as error:
            raise self._broken(f"TLS: {error.reason or error}") from error
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from error

    def _broken(self, why: str) -> Unreachable:
        return Unreachable(f"{self.endpoint}: {self._method}: {why}.", endpoint=self.endpoint)

    # -- one step ----------------------------------------------------------------------------------

    def _open(self) -> None:
        self._connection.open()
        http = self._http
        http.initiate_connection()
        http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
        http.increment_flow_control_window(WINDOW - http.inbound_flow_control_window)
        self._id = http.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", self._connection.scheme),
            (":path", f"/{self._method}"),
            (":authority", self._connection.authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *self._metadata,
        ]
        http.send_headers(self._id, headers)

    def _step(self) -> None:
        """Send what is to be sent; read what has come, once it is time to."""
        while self._to_send:
            message = self._to_send.popleft()
            self._http.send_data(self._id, _HEAD.pack(0, len(message)) + message)
        if data := self._http.data_to_send():
            self._connection.write(data)
        if not self._connection.wait():
            return
        if (early := self._next_reading - time.monotonic()) > 0:
            self._connection.pause(early)
        received = self._connection.read(READ_BYTES)
        if received == b"":
            self._end_by("the connection was closed")
        elif received:
            for event in self._http.receive_data(received):
                self._handle(event)

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived(data=data, flow_controlled_length=size):
                self._received += data or b""
                self._http.acknowledge_received_data(size or 0, self._id)
            case h2.events.ResponseReceived(headers=headers) | h2.events.TrailersReceived(headers=headers):
                self._see_status({str(name): str(value) for name, value in headers or ()})
            case h2.events.StreamEnded():
                self._end_by("it was ended without a reason")
            case h2.events.StreamReset(error_code=code):
                self._end_by(f"it was reset ({code!s})")
            case h2.events.ConnectionTerminated():
                self._end_by("the member ends its connections")

    def _end_by(self, why: str) -> None:
        """Note an end, unless a reason is known already."""
        self._end = self._end or self._broken(why)

    def _see_status(self, headers: dict[str, str]) -> None:
        status = headers.get("grpc-status")
        if status is not None:
            details = urllib.parse.unquote(headers.get("grpc-message", "")) or "it was ended"
            code = _CODES.get(status)
            if code is grpc.StatusCode.OK:
                self._end = self._broken(details)
            else:
                self._end = problem(code, details, self.endpoint, self._method)
        elif headers.get(":status", "200") != "200":
            self._end = self._broken(f"HTTP status {headers[':status']}")

    def _messages(self) -> list[bytes]:
        """Take the whole messages out of what was received."""
        found: list[bytes] = []
        at, received = 0, self._received
        while len(received) - at >= _HEAD.size:
            compressed, size = _HEAD.unpack_from(received, at)
            if compressed or size > MESSAGE_MAX:
                raise self._broken(f"a message of {size} bytes, compressed: {bool(compressed)}")
            end = at + _HEAD.size + size
            if end > len(received):
                break
            found.append(bytes(received[at + _HEAD.size : end]))
            at = end
        del received[:at]
        return found
